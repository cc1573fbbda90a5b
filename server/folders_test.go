package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/server"
	"github.com/streamdb/streamdb/storage/object"
)

// listing is what a folder has, with sizes and times.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		out[path] = fmt.Sprint(info.Size(), info.ModTime())
		return err
	}))
	return out
}

func copyFolder(t *testing.T, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}

// All combinations of what a data directory and a checkpoint directory hold. What would lose rows without a word is refused, and nothing is written then; what legitimately goes
// on does.
func TestDataDirectoryAndCheckpointDirectory(t *testing.T) {
	const manual = "execution.checkpointing.interval"
	start := func(t *testing.T, data, store string) (*server.Server, error) {
		return server.Open(t.Context(), server.Config{DataDir: data, CheckpointDir: store, Memory: 64 << 20, Settings: map[string]string{manual: "0"}})
	}
	run := func(t *testing.T, data, store string, stmts ...string) string {
		t.Helper()
		srv, err := start(t, data, store)
		require.NoError(t, err)
		d := &database{t: t, ctx: t.Context(), srv: srv}
		s := d.connect()
		s.must(stmts...)
		n := s.row("SELECT count(*) FROM t")
		require.NoError(t, s.Close(t.Context()))
		require.NoError(t, srv.Abort())
		return n
	}
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	create := []string{"CREATE TABLE t (a int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 10)", "CHECKPOINT", "INSERT INTO t SELECT generate_series(11, 15)"}
	run(t, at("data"), at("store"), create...) // 10 rows in the store, 15 in all
	run(t, at("otherdata"), at("other"), create...)
	older := copyFolder(t, at("store"))
	run(t, at("data"), at("store")) // one claim more
	newer := copyFolder(t, at("store"))
	run(t, filepath.Join(base, "new machine"), newer, "DELETE FROM t WHERE a < 9", "CHECKPOINT")
	rooted := filepath.Join(base, "rooted")
	srv, err := server.Open(t.Context(), server.Config{
		DataDir: filepath.Join(base, "rooteddata"), CheckpointDir: rooted, Memory: 64 << 20, Settings: map[string]string{manual: "0", checkpoint.SettingRecoveryPath: at("store")},
	})
	require.NoError(t, err)
	require.NoError(t, srv.Close(t.Context()))

	for _, c := range []struct {
		name, data, store string // what is copied; data "": an empty directory
		rows              string // "": refused
		what              string
	}{
		{name: "new machine", store: at("store"), rows: "10"},
		{name: "new machine over another", store: at("other"), rows: "10"},
		{name: "restart", data: at("data"), store: at("store"), rows: "15"},
		{name: "taken over", data: at("data"), store: newer, rows: "2"},
		{name: "a store that is not there", data: at("data"), what: "which holds none"},
		{name: "another database", data: at("data"), store: at("other"), what: "which holds another database"},
		{name: "a database that was restored from this one", data: at("data"), store: rooted, what: "which holds another database"},
		{name: "an older copy", data: at("data"), store: older, what: "which holds another database"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, store := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "moved")
			if c.data != "" {
				data = copyFolder(t, c.data)
			}
			if c.store != "" {
				store = copyFolder(t, c.store)
			}
			if c.rows != "" {
				require.Equal(t, c.rows, run(t, data, store))
				require.Equal(t, c.rows, run(t, data, store), "once more")
				require.NoError(t, os.Rename(store, store+"2"))
				require.Equal(t, c.rows, run(t, data, store+"2"), "a folder may be moved")
				aside, err := filepath.Glob(filepath.Join(data, "superseded", "*"))
				require.NoError(t, err)
				require.Equal(t, c.name == "taken over", len(aside) == 1, aside)
				if len(aside) == 1 { // what was set aside can be read beside a copy of the store from before
					require.NoError(t, os.CopyFS(filepath.Join(aside[0], "checkpoints"), os.DirFS(at("store"))))
					require.Equal(t, "15", run(t, aside[0], ""))
				}
				return
			}
			for _, settings := range []map[string]string{{}, {"high-availability.type": "storage"}} {
				dataBefore, storeBefore := listing(t, data), listing(t, store)
				_, err := server.Open(t.Context(), server.Config{DataDir: data, CheckpointDir: store, Memory: 64 << 20, Settings: settings})
				require.Equal(t, pgerr.ObjectNotInPrerequisiteState, pgerr.CodeOf(err), "%v", err)
				require.EqualError(t, err, "data directory "+data+" belongs to checkpoint directory "+at("store")+", not to "+store+", "+c.what)
				require.Contains(t, pgerr.From(err).Hint, "--checkpoint-dir="+at("store"))
				require.Equal(t, dataBefore, listing(t, data))
				require.Equal(t, storeBefore, listing(t, store))
			}
			require.Equal(t, "15", run(t, data, copyFolder(t, at("store"))), "nothing was lost")
		})
	}

	// The default is a checkpoint directory like any other; one that was emptied is told.
	_, err = start(t, at("data"), "")
	require.ErrorContains(t, err, "not to "+object.FolderURL(filepath.Join(at("data"), "checkpoints")))
	_, err = start(t, at("data"), "memory://")
	require.Equal(t, pgerr.ObjectNotInPrerequisiteState, pgerr.CodeOf(err), "%v", err)
	require.NoError(t, os.Rename(at("store"), at("away")))
	_, err = start(t, at("data"), at("store"))
	require.ErrorContains(t, err, "the database of data directory "+at("data")+" is not in its checkpoint directory "+at("store")+" any more")
	// A HEAD that is lost for a while costs nothing.
	require.NoError(t, os.Rename(at("away"), at("store")))
	require.NoError(t, os.Rename(filepath.Join(at("store"), "HEAD"), at("HEAD")))
	_, err = start(t, at("data"), at("store"))
	require.Equal(t, pgerr.DataCorrupted, pgerr.CodeOf(err), "%v", err)
	require.NoError(t, os.Rename(at("HEAD"), filepath.Join(at("store"), "HEAD")))
	require.Equal(t, "15", run(t, at("data"), at("store")))
	// Checkpoints in memory leave the log whole: from there on a store may be given.
	run(t, at("mem"), "memory://", create...)
	require.Equal(t, "15", run(t, at("mem"), at("durable")))
	_, err = start(t, at("mem"), "memory://")
	require.Equal(t, pgerr.ObjectNotInPrerequisiteState, pgerr.CodeOf(err), "%v", err)
}

// A former server of a database comes back after more takeovers than HEAD lists.
func TestFormerServerAfterManyTakeovers(t *testing.T) {
	d := open(t, func(c *server.Config) { c.CheckpointDir = t.TempDir() })
	d.connect().must("CREATE TABLE t (a int)", "CHECKPOINT")
	require.NoError(t, d.srv.Abort())
	store, err := object.Open(t.Context(), d.cfg.CheckpointDir)
	require.NoError(t, err)
	for range 70 {
		c, err := checkpoint.New(checkpoint.DefaultConfig(), store, checkpoint.Env{})
		require.NoError(t, err)
		_, err = c.Claim(t.Context())
		require.NoError(t, err)
	}
	d.start()
	require.Equal(t, "0", d.connect().row("SELECT count(*) FROM t"))
	aside, err := filepath.Glob(filepath.Join(d.cfg.DataDir, "superseded", "*"))
	require.NoError(t, err)
	require.Len(t, aside, 1)
}

func TestCheckpointDirectoryIsASavepoint(t *testing.T) {
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)")
	url := s.row("SELECT streamdb.savepoint('" + t.TempDir() + "')")
	folder, _, err := object.Folder(url)
	require.NoError(t, err)
	before := listing(t, folder)
	data := filepath.Join(t.TempDir(), "data")
	_, err = server.Open(t.Context(), server.Config{DataDir: data, CheckpointDir: url})
	require.Equal(t, pgerr.ObjectNotInPrerequisiteState, pgerr.CodeOf(err), "%v", err)
	require.Contains(t, pgerr.From(err).Hint, checkpoint.SettingRecoveryPath)
	require.Equal(t, before, listing(t, folder))
	require.NoDirExists(t, data)
}

// A server that has nothing to write learns that another one has taken its store.
func TestIdleServerNoticesThatItsStoreIsLost(t *testing.T) {
	d := open(t, func(c *server.Config) {
		c.CheckpointDir = t.TempDir()
		c.Settings = map[string]string{"execution.checkpointing.interval": "1h"}
	})
	other := d.cfg
	other.DataDir = t.TempDir()
	srv, err := server.Open(t.Context(), other)
	require.NoError(t, err)
	err = <-d.srv.Fatal()
	require.ErrorIs(t, err, checkpoint.ErrFenced)
	require.Equal(t, pgerr.CrashShutdown, pgerr.CodeOf(err))
	require.NoError(t, srv.Close(context.Background()))
}

// The store of a process that runs on this machine is not taken from it; one that had the same number does not count. A server with --standby waits.
func TestStoreOfARunningProcess(t *testing.T) {
	dir := t.TempDir()
	host, err := os.Hostname()
	require.NoError(t, err)
	store, err := object.Open(t.Context(), dir)
	require.NoError(t, err)
	claim := func(pid int, process string, elected bool) {
		t.Helper()
		c, err := checkpoint.New(checkpoint.DefaultConfig(), store, checkpoint.Env{Holder: fmt.Sprintf("%s/%d", host, pid), Process: process, Elected: elected})
		require.NoError(t, err)
		_, err = c.Claim(t.Context())
		require.NoError(t, err)
	}
	owner := exec.Command("sleep", "1000")
	require.NoError(t, owner.Start())
	ended := false
	end := func() {
		if !ended {
			require.NoError(t, owner.Process.Kill())
			_ = owner.Wait()
		}
		ended = true
	}
	t.Cleanup(end)
	pid := owner.Process.Pid
	process := checkpoint.Process(pid)
	require.NotEmpty(t, process)
	cfg := server.Config{DataDir: t.TempDir(), CheckpointDir: dir, Memory: 64 << 20}

	for _, elected := range []bool{false, true} {
		claim(pid, process, elected)
		_, err = server.Open(t.Context(), cfg)
		require.Equal(t, pgerr.ObjectInUse, pgerr.CodeOf(err), "%v", err)
		require.ErrorContains(t, err, fmt.Sprintf("checkpoint directory %s belongs to server %s/%d, whose process %d is running", dir, host, pid, pid))
	}
	claim(pid, process+"0", false)
	srv, err := server.Open(t.Context(), cfg)
	require.NoError(t, err, "another process has the number now")
	require.NoError(t, srv.Close(t.Context()))

	claim(pid, process, false)
	d := &database{t: t, ctx: t.Context(), cfg: cfg}
	_, opened := d.waiting(shared(dir, "1s"))
	select {
	case <-opened:
		t.Fatal("a server with --standby has taken the store of one that runs")
	case <-time.After(1500 * time.Millisecond):
	}
	end()
	require.NotNil(t, <-opened)
}

// execution.state-recovery.path on a server that has checkpoints: of the same database it is ignored with a warning that names both, of another it is an error.
func TestRecoveryPathOfAServerThatHasCheckpoints(t *testing.T) {
	var log bytes.Buffer
	d := open(t)
	s := d.connect()
	s.must("CREATE TABLE t (a int)")
	own := s.row("SELECT streamdb.savepoint('" + t.TempDir() + "')")
	s.must("INSERT INTO t VALUES (1)", "CHECKPOINT")
	other := open(t)
	so := other.connect()
	so.must("CREATE TABLE t (a int)", "CHECKPOINT")
	savepoint := so.row("SELECT streamdb.savepoint('" + t.TempDir() + "')")
	require.NoError(t, d.srv.Abort())
	d.cfg.Logger = zerolog.New(&log)
	for _, path := range []string{own, filepath.Join(d.cfg.DataDir, "checkpoints"), "/not/there/any/more"} {
		log.Reset()
		d.cfg.Settings = map[string]string{checkpoint.SettingRecoveryPath: path}
		d.start()
		require.Equal(t, "1", d.connect().row("SELECT count(*) FROM t"))
		require.NoError(t, d.srv.Abort())
		require.Contains(t, log.String(), checkpoint.SettingRecoveryPath+" is ignored")
		require.Contains(t, log.String(), path)
		require.Contains(t, log.String(), object.FolderURL(filepath.Join(d.cfg.DataDir, "checkpoints")))
	}
	for _, path := range []string{savepoint, filepath.Join(other.cfg.DataDir, "checkpoints")} {
		cfg := d.cfg
		cfg.Settings = map[string]string{checkpoint.SettingRecoveryPath: path}
		_, err := server.Open(t.Context(), cfg)
		require.Equal(t, pgerr.ObjectNotInPrerequisiteState, pgerr.CodeOf(err), "%v", err)
		require.ErrorContains(t, err, "already hold another database")
	}
	d.cfg.Settings = nil
	d.start()
	require.Equal(t, "1", d.connect().row("SELECT count(*) FROM t"))
	// What was restored knows what from, and is started with the same configuration for ever.
	restored := from(t, savepoint)
	for range 2 {
		restored.connect().must("CHECKPOINT")
		restored.crash()
	}
}

// A folder of savepoints is not one: the error names those in it, the newest first.
func TestFolderOfSavepoints(t *testing.T) {
	d := open(t)
	s := d.connect()
	folder := t.TempDir()
	s.must("CREATE TABLE t (a int)")
	var made []string
	for range 4 {
		made = append(made, filepath.Base(s.row("SELECT streamdb.savepoint('"+folder+"')")))
	}
	for i, name := range made {
		at := time.Unix(int64(1000*i), 0)
		require.NoError(t, os.Chtimes(filepath.Join(folder, name, "manifest"), at, at))
	}
	e := s.fails("SELECT * FROM streamdb.read_checkpoint('"+folder+"', 't')", "58P01", "there is no savepoint and no checkpoint at "+folder+", which is a folder of savepoints")
	require.Equal(t, "Name one of them: the newest of the 4 in it are "+folder+"/"+made[3]+", "+folder+"/"+made[2]+", "+folder+"/"+made[1]+".", e.Hint)
	require.NoError(t, os.RemoveAll(filepath.Join(folder, made[0])))
	_, err := server.Open(t.Context(), server.Config{DataDir: t.TempDir(), Settings: map[string]string{checkpoint.SettingRecoveryPath: folder}})
	require.Equal(t, pgerr.UndefinedFile, pgerr.CodeOf(err), "%v", err)
	require.Contains(t, pgerr.From(err).Hint, "Name one of them: it has "+folder+"/"+made[3])
}
