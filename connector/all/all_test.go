package all

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/connector"
)

var rewrite = flag.Bool("rewrite", false, "write the tables of the manual")

const manual = "../../docs/connectors.md"

func table(options []connector.Option) string {
	var b strings.Builder
	b.WriteString("| Option | Default | Meaning |\n|---|---|---|\n")
	for _, o := range options {
		def := ""
		switch {
		case o.Required:
			def = "required"
		case o.Default != "":
			def = "`" + o.Default + "`"
		}
		doc := strings.ReplaceAll(o.Doc, "|", "\\|")
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", strings.ReplaceAll(o.Name, "*", "<column>"), def, doc)
	}
	return b.String()
}

// The tables of the manual are what the connectors say of themselves; go test ./connector/all -rewrite writes them.
func TestManual(t *testing.T) {
	text, err := os.ReadFile(manual)
	require.NoError(t, err)
	r := Builtin()
	want := string(text)
	put := func(name string, options []connector.Option) {
		re := regexp.MustCompile("(?s)(<!-- options of " + name + " -->\n).*?(<!-- end -->)")
		require.True(t, re.MatchString(want), "no table of %s", name)
		want = re.ReplaceAllStringFunc(want, func(s string) string {
			m := re.FindStringSubmatch(s)
			return m[1] + table(options) + m[2]
		})
	}
	for _, n := range r.Names() {
		c, err := r.Lookup(n)
		require.NoError(t, err)
		put(n, c.Options())
	}
	put("every sink", connector.SinkOptions())
	for _, c := range r.Sinks() {
		put("sink "+c.Name(), c.Options())
	}
	for _, e := range r.Encodings() {
		if len(e.Options) > 0 {
			put(e.Name, e.Options)
		}
	}
	if *rewrite {
		require.NoError(t, os.WriteFile(manual, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, string(text))
}

func TestOptionsAreDocumented(t *testing.T) {
	r := Builtin()
	for _, n := range r.Names() {
		c, err := r.Lookup(n)
		require.NoError(t, err)
		for _, o := range c.Options() {
			require.NotEmpty(t, o.Doc, "%s of %s", o.Name, n)
			if o.Check != nil && o.Default != "" {
				require.NoError(t, o.Check(o.Default), "default of %s of %s", o.Name, n)
			}
		}
	}
}
