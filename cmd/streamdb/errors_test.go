package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
)

func TestListenOnPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, err = listenOn(l.Addr().String(), "--http")
	require.Error(t, err)
	require.Contains(t, describe(err), "address "+l.Addr().String()+" is already in use\n  hint: Stop the program that listens there, or give another address with --http.")
}

// The tools know savepoints as they know the directory of a server.
func TestToolsOverSavepoints(t *testing.T) {
	dir := t.TempDir()
	data, savepoints := filepath.Join(dir, "data"), filepath.Join(dir, "savepoints")
	for _, canonical := range []string{"native", "canonical"} {
		require.Zero(t, run([]string{
			"sql", "--data-dir", data, "-c",
			"CREATE TABLE IF NOT EXISTS t (a int); INSERT INTO t VALUES (1); SELECT streamdb.savepoint('" + savepoints + "', format => '" + canonical + "')",
		}))
	}
	paths, err := filepath.Glob(filepath.Join(savepoints, "savepoint-*"))
	require.NoError(t, err)
	require.Len(t, paths, 2)
	for _, path := range append(paths, filepath.Join(data, "checkpoints")) {
		for _, tool := range []string{"list", "inspect", "verify"} {
			require.Zero(t, run([]string{"checkpoint", tool, path}), "%s %s", tool, path)
		}
	}
	require.Equal(t, exitFailure, run([]string{"checkpoint", "verify", savepoints}), "there is nothing to verify")
}

// Tools over checkpoints do not make the folder that they are to look at.
func TestCheckpointsOfNoFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	for _, url := range []string{dir, "file://" + dir} {
		for _, tool := range []string{"list", "inspect", "verify", "gc"} {
			require.Equal(t, exitFailure, run([]string{"checkpoint", tool, url}), tool)
			require.NoDirExists(t, dir)
		}
	}
}

// Garbage is left alone while the server that has claimed the store may run.
func TestServerOfAStoreMayRun(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	ended := exec.Command("true")
	require.NoError(t, ended.Run())
	for holder, why := range map[string]string{
		"": "", "somebody": "", fmt.Sprintf("%s/%d", host, os.Getpid()): "", fmt.Sprintf("%s/%d", host, ended.Process.Pid): "",
		fmt.Sprintf("%s/%d", host, os.Getppid()): fmt.Sprintf("whose process %d is running", os.Getppid()), "elsewhere.example/1": "which may be running on elsewhere.example",
	} {
		require.Equal(t, why, mayRun(checkpoint.Claimed{Holder: holder}), holder)
	}
}

// What is wrong with a configuration file is told as its writer sees it.
func TestConfigurationFileErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	for text, want := range map[string]string{
		"data-dirr: x": `line 1: there is no "data-dirr"` + "\n  hint: Perhaps you meant \"data-dir\".", "memory: 1GiB\ncheckpoint_dir: x": `line 2: there is no "checkpoint_dir"` + "\n  hint: Perhaps you meant \"checkpoint-dir\".",
		"zzzzzzzzzzzz: 1": "There are: data-dir, checkpoint-dir", "data-dir: [a]": "line 1: expected a text, not a list", "insecure: maybe": "line 1: expected true or false, not maybe",
		"epoch-interval: soon": "line 1: expected a duration such as 100ms, not soon", "settings: 1": "line 1: expected names with values, not 1", "settings:\n  a: {b: c}": "line 2: expected a text, not a mapping",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		err := (&serveCmd{Config: file}).loadFile()
		require.Error(t, err, text)
		require.Contains(t, describe(err), want, text)
		require.NotContains(t, describe(err), "main.", text)
	}
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, (&serveCmd{Config: file}).loadFile())

	require.NoError(t, os.WriteFile(file, []byte("settings:\n  work_mem: 5MB\n  lock_timeout: 1s"), 0o600))
	c := &serveCmd{Config: file, dbFlags: dbFlags{Set: map[string]string{"lock_timeout": "2s"}}}
	require.NoError(t, c.loadFile())
	o := c.options(&app{})
	require.Equal(t, map[string]string{"work_mem": "5MB", "lock_timeout": "2s"}, o.Settings)
	require.Equal(t, map[string]string{"work_mem": file}, o.SettingsFrom, "what the command line says is not the file's")
}
