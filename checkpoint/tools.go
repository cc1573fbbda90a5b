package checkpoint

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/storage/object"
)

// List prints the completed checkpoints that are kept, newest first.
func List(ctx context.Context, store object.Store, w io.Writer) error {
	h, _, err := readHead(ctx, store)
	if err != nil {
		return err
	}
	if h == nil || len(h.Retained) == 0 {
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

// Inspect prints what checkpoint id consists of; 0 means the newest.
func Inspect(ctx context.Context, store object.Store, id uint64, w io.Writer) error {
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
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "checkpoint\t%d\nepoch\t%d\ncreated\t%s\nmanifest\t%s (%d bytes)\n", m.ID, m.Epoch, m.Created.Format(time.RFC3339Nano), m.Object, m.Size)
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

// Verify reads everything that the kept checkpoints reference, checks sizes and checksums, prints what is wrong, and returns how many
// problems there are.
func Verify(ctx context.Context, store object.Store, w io.Writer) (problems int, err error) {
	h, _, err := readHead(ctx, store)
	if err != nil {
		if pgerr.CodeOf(err) != pgerr.DataCorrupted {
			return 0, err
		}
		_, werr := fmt.Fprintln(w, err)
		return 1, werr
	}
	if h == nil {
		_, err := fmt.Fprintf(w, "no checkpoints in %s\n", store)
		return 0, err
	}
	checked := map[string]bool{}
	for _, at := range h.all() {
		m, err := loadManifest(ctx, store, at)
		if err != nil {
			problems++
			fmt.Fprintln(w, err)
			continue
		}
		m.refsOf(func(job uint64, name string, r ref) {
			at := fmt.Sprintf("%s+%d", r.Object, r.Offset)
			if r.Object == "" || checked[at] || ctx.Err() != nil {
				return
			}
			checked[at] = true
			if err := verifyRef(ctx, store, r); err != nil {
				problems++
				fmt.Fprintf(w, "checkpoint %d, job %d, %s: %v\n", m.ID, job, name, err)
			}
		})
	}
	if err := ctx.Err(); err != nil {
		return problems, err
	}
	_, err = fmt.Fprintf(w, "%d checkpoints, %d references read, %d problems\n", len(h.all()), len(checked), problems)
	return problems, err
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
