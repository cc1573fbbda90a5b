package wal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// fdatasync makes a file's bytes and length durable, but not its times.
func fdatasync(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
