package exec

import (
	"fmt"
	"testing"
)

// A reader that was there before the first epoch of what it reads may be filled from that epoch: it goes on with the rows of the next one.
func TestReaderOfTheFirstEpoch(t *testing.T) {
	for _, query := range []string{"select id, k from src", "select distinct k from src"} {
		d := openDB(t, testOptions{})
		d.source("src", "id int8, k int8", "")
		for i := range 20000 {
			d.script.add("a", fmt.Sprintf("%d,%d", i, i%500))
		}
		read := d.define("read", query, 2)
		reader := d.create("reader", "select k from read", 2)
		d.until("the reader waits", reader.pinning.Load)
		read.Start()
		d.wait(read.CaughtUp(), "read catches up")
		d.wait(reader.CaughtUp(), "reader catches up")
		d.until("all is there", func() bool {
			return d.script.unread() == 0 && fmt.Sprint(d.query("select count(*) as n from reader", 0)) == fmt.Sprint(d.query("select count(*) as n from read", 0))
		})
	}
}
