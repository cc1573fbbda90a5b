package checkpoint

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

// List prints the completed checkpoints that are kept, newest first, or the savepoints in a folder of such.
func List(ctx context.Context, store object.Store, w io.Writer) error {
	h, _, err := readHead(ctx, store)
	if err != nil {
		return err
	}
	if h == nil {
		return listSavepoints(ctx, store, w)
	}
	if len(h.Retained) == 0 {
		_, err := fmt.Fprintf(w, "no checkpoints in %s\n", store)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "CHECKPOINT\tEPOCH\tCREATED\tJOBS\tSIZE\tMANIFEST")
	for _, at := range slices.Backward(h.all()) {
		m, err := loadManifest(ctx, store, at)
		if err != nil {
			fmt.Fprintf(t, "%d\t\t\t\t\t%s: %v\n", at.ID, at.Object, err)
			continue
		}
		size := int64(0)
		m.refsOf(func(_ uint64, _ string, r ref) { size += r.Size })
		fmt.Fprintf(t, "%d\t%d\t%s\t%d\t%d\t%s\n", m.ID, m.Epoch, m.Created.Format(time.RFC3339), len(m.Jobs), size, at.Object)
	}
	fmt.Fprintf(t, "\nholder %s, term %d, sequence %d, ids reserved to %d\n", h.Holder, h.Term, h.Seq, h.IDsReservedTo)
	return t.Flush()
}

// listSavepoints prints the savepoints in a folder, or the one that the folder is.
func listSavepoints(ctx context.Context, store object.Store, w io.Writer) error {
	manifests, err := savepointsIn(ctx, store)
	if err != nil {
		return err
	}
	var found []string
	for _, m := range manifests {
		found = append(found, strings.TrimSuffix(m.Key, "/"+savepointKey))
	}
	if _, err := store.Head(ctx, savepointKey); err == nil {
		found = append(found, "")
	}
	if len(found) == 0 {
		_, err := fmt.Fprintf(w, "no checkpoints in %s\n", store)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "SAVEPOINT\tEPOCH\tCREATED\tFORM\tJOBS\tSIZE\tFOLDER")
	for _, folder := range found {
		part := object.WithPrefix(store, folder)
		o, err := openSavepoint(ctx, part)
		if err != nil || o == nil {
			fmt.Fprintf(t, "\t\t\t\t\t\t%s: %v\n", part, err)
			continue
		}
		size := int64(0)
		o.refsOf(func(_ uint64, _ string, r ref) { size += r.Size })
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%d\t%d\t%s\n", o.ID, o.Epoch, o.Created.Format(time.RFC3339), o.Form, len(o.Jobs), size, part)
	}
	return t.Flush()
}

// Inspect prints what checkpoint id consists of; 0 means the newest, or the savepoint that the store is.
func Inspect(ctx context.Context, store object.Store, id uint64, w io.Writer) error {
	if id == 0 {
		if o, err := openSavepoint(ctx, store); err != nil || o != nil {
			if err != nil {
				return err
			}
			return inspect(w, o.Manifest, "savepoint", o.Form)
		}
	}
	h, _, err := readHead(ctx, store)
	if err != nil {
		return err
	}
	var at *manifestRef
	if h != nil {
		for _, r := range h.all() {
			if (id == 0 || r.ID == id) && (at == nil || r.Seq > at.Seq) {
				at = &r
			}
		}
	}
	if at == nil {
		return pgerr.Newf(pgerr.UndefinedObject, "checkpoint %d is not in %s", id, store).WithHint("streamdb checkpoint list shows which are.")
	}
	m, err := loadManifest(ctx, store, *at)
	if err != nil {
		return err
	}
	return inspect(w, m, "checkpoint", "")
}

func inspect(w io.Writer, m *Manifest, kind, form string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "%s\t%d\nepoch\t%d\ncreated\t%s\nmanifest\t%s (%d bytes)\n", kind, m.ID, m.Epoch, m.Created.Format(time.RFC3339Nano), m.Object, m.Size)
	if form != "" {
		fmt.Fprintf(t, "form\t%s\n", form)
	}
	fmt.Fprintf(t, "catalog version\t%d\n", m.CatalogVersion)
	if m.catalogRef != nil {
		fmt.Fprintf(t, "catalog\t%s\n", m.catalogRef)
	}
	for _, job := range sortedJobs(m) {
		inspectJob(t, m.Jobs[job])
	}
	return t.Flush()
}

func inspectJob(w io.Writer, s *JobState) {
	fmt.Fprintf(w, "\njob %d\t%s\n  checkpoint\t%d (changed in %d)\n  epoch\t%d\n  parallelism\t%d\n", s.Job, s.Name, s.Checkpoint, s.refs.since, s.Epoch, s.Parallelism)
	if st := s.State; st != nil {
		fmt.Fprintf(w, "  state\t%s, format %d, max parallelism %d, %d bytes (%d new)\n", st.Backend, st.Format, st.MaxParallelism, st.FullSize, st.NewBytes)
		for _, table := range slices.Sorted(maps.Keys(st.Entries)) {
			fmt.Fprintf(w, "    table %d\t%d entries\n", table, st.Entries[table])
		}
		for _, h := range st.Base {
			fmt.Fprintf(w, "    base %s\t%s\n", h.Name, s.refs.files[h.Name])
		}
		for _, h := range st.Deltas {
			fmt.Fprintf(w, "    delta %s\t%s\n", h.Name, s.refs.files[h.Name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.refs.positions)) {
		fmt.Fprintf(w, "  position %s\t%s\n", name, s.refs.positions[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.refs.operators)) {
		fmt.Fprintf(w, "  operator %s\t%s\n", name, s.refs.operators[name])
	}
}

// String shows where the bytes are.
func (r ref) String() string {
	if r.Object == "" {
		return fmt.Sprintf("%d bytes inline, crc32c %08x", r.Size, r.CRC)
	}
	return fmt.Sprintf("%d bytes at %s+%d, crc32c %08x", r.Size, r.Object, r.Offset, r.CRC)
}

// Verify reads everything that the kept checkpoints, or a savepoint, reference, checks sizes and checksums, prints what is wrong, and returns how many
// problems there are.
func Verify(ctx context.Context, store object.Store, w io.Writer) (problems int, err error) {
	damaged := func(err error) (int, error) {
		if pgerr.CodeOf(err) != pgerr.DataCorrupted {
			return 0, err
		}
		_, werr := fmt.Fprintln(w, err)
		return 1, werr
	}
	v := &verifier{store: store, w: w, checked: map[string]bool{}}
	o, err := openSavepoint(ctx, store)
	if err != nil {
		return damaged(err)
	}
	if o != nil {
		v.manifest(ctx, "savepoint", o.Manifest)
		if err := ctx.Err(); err != nil {
			return v.problems, err
		}
		_, err = fmt.Fprintf(w, "1 savepoint, %d references read, %d problems\n", len(v.checked), v.problems)
		return v.problems, err
	}
	h, _, err := readHead(ctx, store)
	if err != nil {
		return damaged(err)
	}
	if h == nil {
		return 0, pgerr.Newf(pgerr.UndefinedFile, "there is no checkpoint in %s", store)
	}
	for _, at := range h.all() {
		m, err := loadManifest(ctx, store, at)
		if err != nil {
			v.problems++
			fmt.Fprintln(w, err)
			continue
		}
		v.manifest(ctx, "checkpoint", m)
	}
	if err := ctx.Err(); err != nil {
		return v.problems, err
	}
	_, err = fmt.Fprintf(w, "%d checkpoints, %d references read, %d problems\n", len(h.all()), len(v.checked), v.problems)
	return v.problems, err
}

// verifier reads what manifests reference, every place once.
type verifier struct {
	store    object.Store
	w        io.Writer
	checked  map[string]bool
	problems int
}

func (v *verifier) manifest(ctx context.Context, kind string, m *Manifest) {
	m.refsOf(func(job uint64, name string, r ref) {
		at := fmt.Sprintf("%s+%d", r.Object, r.Offset)
		if r.Object == "" || v.checked[at] || ctx.Err() != nil {
			return
		}
		v.checked[at] = true
		if err := verifyRef(ctx, v.store, r); err != nil {
			v.problems++
			fmt.Fprintf(v.w, "%s %d, job %d, %s: %v\n", kind, m.ID, job, name, err)
		}
	})
}

func verifyRef(ctx context.Context, store object.Store, r ref) error {
	sum := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	got := int64(0)
	for got < r.Size {
		data, err := store.GetRange(ctx, r.Object, r.Offset+got, min(fetchBytes, r.Size-got))
		if err != nil {
			return err
		}
		if len(data) == 0 {
			break
		}
		_, _ = sum.Write(data) // a hash never fails
		got += int64(len(data))
	}
	if got != r.Size || sum.Sum32() != r.CRC {
		return corrupt(store.String()+"/"+r.Object, "%d bytes from offset %d have checksum %08x instead of %d with %08x", got, r.Offset, sum.Sum32(), r.Size, r.CRC)
	}
	return nil
}
