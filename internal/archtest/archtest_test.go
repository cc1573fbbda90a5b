package archtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTree(t *testing.T) {
	found, err := Check(os.DirFS(filepath.Join("..", "..")))
	require.NoError(t, err)
	for _, f := range found {
		t.Error(f)
	}
}

// The fixture's files end in .txt so that Go's tools leave them alone.
const plantedSuffix = ".txt"

// planted copies the fixture to where its files have their real names.
func planted(t *testing.T) fs.FS {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join("testdata", "planted")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, strings.TrimSuffix(path, plantedSuffix))
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o600)
	}))
	long := append([]byte("// Package long is too long.\npackage long // want file-size\n"), bytes.Repeat([]byte("//\n"), maxLines)...)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "state", "long"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "state", "long", "long.go"), long, 0o600))
	return os.DirFS(dir)
}

var wantForm = regexp.MustCompile(`want ([a-z-]+)`)

// TestPlanted breaks every rule, at the lines that say so, and nowhere else.
func TestPlanted(t *testing.T) {
	root := planted(t)
	var want []string
	require.NoError(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(root, name)
		for i, line := range bytes.Split(text, []byte("\n")) {
			for _, m := range wantForm.FindAllSubmatch(line, -1) {
				want = append(want, fmt.Sprintf("%s:%d: %s", name, i+1, m[1]))
			}
		}
		return err
	}))
	found, err := Check(root)
	require.NoError(t, err)
	var got []string
	fired := map[string]bool{}
	for _, f := range found {
		got = append(got, fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Rule))
		fired[f.Rule] = true
	}
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
	for _, r := range rules() {
		require.True(t, fired[r.name], "rule %s has no planted violation", r.name)
	}
}

// TestTables: every exception and every entry of a table is about something that exists.
func TestTables(t *testing.T) {
	exists := func(path string) {
		t.Helper()
		_, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(path)))
		require.NoError(t, err)
	}
	for _, l := range layers {
		require.NotEmpty(t, l.why)
		for _, p := range l.packages {
			exists(p)
		}
	}
	for _, e := range exceptions {
		require.NotEmpty(t, e.why)
		exists(e.from)
		exists(e.to)
	}
	for _, c := range confined {
		require.NotEmpty(t, c.why)
		for _, p := range c.in {
			exists(p)
		}
	}
	for p := range panics {
		exists(p)
	}
	for p := range tables {
		exists(p)
	}
}
