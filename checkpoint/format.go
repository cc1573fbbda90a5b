package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/state"
)

// The format versions this binary writes, and the newest it reads. A higher one in an object is refused.
const (
	headFormat     = 1
	manifestFormat = 2 // 1 without rows in flight
	packFormat     = 1
)

// The keys below the store's root.
const (
	headKey        = "HEAD"
	manifestPrefix = "chk/"
	packPrefix     = "pack/"
	dataPrefix     = "data/"
)

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// head is the only object that is overwritten, by compare-and-set: what it lists is what exists.
type head struct {
	Format int `json:"format"`
	// Term counts the servers that have claimed the store; Seq the writes of HEAD. Nonce tells this write from every other.
	Term   uint64 `json:"term"`
	Seq    uint64 `json:"seq"`
	Nonce  string `json:"nonce"`
	Holder string `json:"holder"`
	// Claim names the claim that the writes since belong to, ClaimedFrom the one before: by them a server finds out whether its local data is what HEAD goes on from.
	Claim       string `json:"claim,omitempty"`
	ClaimedFrom string `json:"claimed_from,omitempty"`
	// Line are the claims that led to Claim, which is the last of them, those of what the database was restored from before its own: who wrote outside under one of
	// them is an earlier life of this database.
	Line []string `json:"line,omitempty"`
	// Database is the first claim of the store: what was restored from it elsewhere has another one.
	Database string `json:"database,omitempty"`
	// Process tells the holder from others that have its number; Elected: it leads several servers, and who may follow it is decided by the leader object.
	Process string `json:"process,omitempty"`
	Elected bool   `json:"elected,omitempty"`
	// IDsReservedTo: ids up to here may have been given out and are never used by a later claimer.
	IDsReservedTo uint64        `json:"ids_reserved_to"`
	LastCompleted uint64        `json:"last_completed"`
	Retained      []manifestRef `json:"retained"` // oldest first
	Pinned        []manifestRef `json:"pinned,omitempty"`
	Updated       time.Time     `json:"updated"` // for display only
}

type manifestRef struct {
	ID     uint64 `json:"id"`
	Seq    uint64 `json:"seq"`
	Object string `json:"object"`
	Size   int64  `json:"size"`
	CRC    uint32 `json:"crc32c"`
}

// all lists every manifest that must stay readable.
func (h *head) all() []manifestRef { return append(slices.Clone(h.Retained), h.Pinned...) }

func (h *head) newest() *manifestRef {
	if len(h.Retained) == 0 {
		return nil
	}
	return &h.Retained[len(h.Retained)-1]
}

// ref tells where bytes are: inline in the manifest, or a range of an object.
type ref struct {
	Inline []byte `json:"inline,omitempty"`
	Object string `json:"object,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Size   int64  `json:"size"`
	CRC    uint32 `json:"crc32c"`
}

type manifestDoc struct {
	Format         int       `json:"format"`
	ID             uint64    `json:"id"`
	Seq            uint64    `json:"seq"`
	Term           uint64    `json:"term"`
	Epoch          uint64    `json:"epoch"`
	Created        time.Time `json:"created"`
	CatalogVersion uint64    `json:"catalog_version"`
	Catalog        *ref      `json:"catalog,omitempty"`
	Jobs           []jobDoc  `json:"jobs"`
	Held           []heldDoc `json:"held,omitempty"`
}

type heldDoc struct {
	jobDoc
	CatalogVersion uint64 `json:"catalog_version"`
	Catalog        *ref   `json:"catalog,omitempty"`
}

type jobDoc struct {
	Job         uint64         `json:"job"`
	Name        string         `json:"name"`
	Checkpoint  uint64         `json:"checkpoint"`
	Epoch       uint64         `json:"epoch"`
	Changed     uint64         `json:"changed"` // the checkpoint that last changed its state
	Parallelism int            `json:"parallelism"`
	Inputs      []uint64       `json:"inputs,omitempty"`
	State       *stateDoc      `json:"state,omitempty"`
	Positions   map[string]ref `json:"positions,omitempty"`
	Operators   map[string]ref `json:"operators,omitempty"`
	Inflight    []fileDoc      `json:"inflight,omitempty"`
}

type stateDoc struct {
	Format         int              `json:"format"`
	Backend        string           `json:"backend"`
	MaxParallelism int              `json:"max_parallelism"`
	FullSize       int64            `json:"full_size"`
	NewBytes       int64            `json:"new_bytes"`
	Entries        map[uint32]int64 `json:"entries,omitempty"`
	Base           []fileDoc        `json:"base,omitempty"`
	Deltas         []fileDoc        `json:"deltas,omitempty"`
}

type fileDoc struct {
	Name string `json:"name"`
	ref
	First []byte `json:"first,omitempty"`
	Last  []byte `json:"last,omitempty"`
	// Memory: the bytes are handed back inline at a restore, not as a file.
	Memory bool `json:"memory,omitempty"`
}

// sealDoc frames a document: one line with kind, format, crc32c and length of what follows, then JSON.
func sealDoc(kind string, format int, doc any) ([]byte, error) {
	body, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return append(fmt.Appendf(nil, "streamdb %s %d %08x %d\n", kind, format, castagnoli(body), len(body)), body...), nil
}

// openDoc checks the frame and decodes. where names the object in errors.
func openDoc(kind string, newest int, where string, data []byte, doc any) error {
	line, body, ok := bytes.Cut(data, []byte("\n"))
	fields := strings.Fields(string(line[:min(len(line), maxFrameLine)]))
	if !ok || len(fields) != 5 || fields[0] != "streamdb" || fields[1] != kind {
		return corrupt(where, "it does not begin as a %s does", kind)
	}
	format, err := strconv.Atoi(fields[2])
	if err != nil || format < 1 {
		return corrupt(where, "its format version %q is not a number", fields[2])
	}
	if format > newest {
		return pgerr.Newf(pgerr.FeatureNotSupported, "%s has format version %d, this binary reads up to %d", where, format, newest).
			WithHint("It was written by a newer version of streamdb: use that version.")
	}
	if size, err := strconv.Atoi(fields[4]); err != nil || size != len(body) {
		return corrupt(where, "it has %d bytes instead of %s", len(body), fields[4])
	}
	if crc := fmt.Sprintf("%08x", castagnoli(body)); crc != fields[3] {
		return corrupt(where, "its checksum is %s instead of %s", crc, fields[3])
	}
	if err := json.Unmarshal(body, doc); err != nil {
		return corrupt(where, "%v", err)
	}
	return nil
}

// maxFrameLine bounds the first line of a document.
const maxFrameLine = 200

// corrupt is the error of bytes that are not what was written.
func corrupt(where, format string, args ...any) error {
	return pgerr.Newf(pgerr.DataCorrupted, "%s is corrupt: %s", where, fmt.Sprintf(format, args...)).
		WithHint("Restore the object from a copy; streamdb checkpoint verify lists everything that is damaged.")
}

// docOf makes the stored form of m.
func docOf(m *Manifest, term uint64) *manifestDoc {
	doc := &manifestDoc{
		Format: 1, ID: m.ID, Seq: m.Seq, Term: term, Epoch: m.Epoch, Created: m.Created,
		CatalogVersion: m.CatalogVersion, Catalog: m.catalogRef, Jobs: []jobDoc{},
	}
	ids := make([]uint64, 0, len(m.Jobs))
	for id := range m.Jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		doc.Jobs = append(doc.Jobs, docOfJob(m.Jobs[id]))
		if len(m.Jobs[id].Inflight) > 0 {
			doc.Format = manifestFormat
		}
	}
	for _, id := range slices.Sorted(maps.Keys(m.Held)) {
		for _, h := range m.Held[id] {
			held := *h.JobState
			refs := *held.refs
			refs.positions, refs.operators = nil, nil // nobody goes on from it
			held.refs = &refs
			doc.Held = append(doc.Held, heldDoc{jobDoc: docOfJob(&held), CatalogVersion: h.CatalogVersion, Catalog: h.catalogRef})
		}
	}
	return doc
}

func docOfJob(s *JobState) jobDoc {
	j := jobDoc{
		Job: s.Job, Name: s.Name, Checkpoint: s.Checkpoint, Epoch: s.Epoch, Changed: s.refs.since, Parallelism: s.Parallelism, Inputs: s.Inputs,
		Positions: s.refs.positions, Operators: s.refs.operators, Inflight: fileDocs(s.Inflight, s.refs),
	}
	if s.State != nil {
		j.State = &stateDoc{
			Format: s.State.Format, Backend: string(s.State.Backend), MaxParallelism: s.State.MaxParallelism,
			FullSize: s.State.FullSize, NewBytes: s.State.NewBytes, Entries: s.State.Entries,
			Base: fileDocs(s.State.Base, s.refs), Deltas: fileDocs(s.State.Deltas, s.refs),
		}
	}
	return j
}

func fileDocs(handles []state.Handle, refs *stateRefs) []fileDoc {
	docs := make([]fileDoc, len(handles))
	for i, h := range handles {
		docs[i] = fileDoc{Name: h.Name, ref: refs.files[h.Name], First: h.First, Last: h.Last, Memory: refs.memory[h.Name]}
	}
	return docs
}

// manifestOf makes a Manifest of its stored form. Bytes that are not inline are still to be read.
func manifestOf(doc *manifestDoc, at manifestRef) *Manifest {
	m := &Manifest{
		ID: doc.ID, Seq: doc.Seq, Epoch: doc.Epoch, Created: doc.Created, Object: at.Object, Size: at.Size,
		CatalogVersion: doc.CatalogVersion, catalogRef: doc.Catalog, Jobs: map[uint64]*JobState{},
	}
	for _, j := range doc.Jobs {
		m.Jobs[j.Job] = jobOf(j)
	}
	m.Held = map[uint64][]*HeldState{}
	for _, h := range doc.Held {
		m.Held[h.Job] = append(m.Held[h.Job], &HeldState{JobState: jobOf(h.jobDoc), CatalogVersion: h.CatalogVersion, catalogRef: h.Catalog})
	}
	return m
}

func jobOf(j jobDoc) *JobState {
	s := &JobState{
		Job: j.Job, Name: j.Name, Checkpoint: j.Checkpoint, Epoch: j.Epoch, Parallelism: j.Parallelism, Inputs: j.Inputs,
		Positions: map[string][]byte{}, Operators: map[string][]byte{},
		refs: &stateRefs{files: map[string]ref{}, memory: map[string]bool{}, positions: j.Positions, operators: j.Operators, since: j.Changed},
	}
	s.Inflight = handles(j.Inflight, s.refs)
	if d := j.State; d != nil {
		s.State = &state.Snapshot{
			Format: d.Format, Backend: state.BackendType(d.Backend), MaxParallelism: d.MaxParallelism,
			FullSize: d.FullSize, NewBytes: d.NewBytes, Entries: d.Entries,
			Base: handles(d.Base, s.refs), Deltas: handles(d.Deltas, s.refs),
		}
	}
	return s
}

func handles(docs []fileDoc, refs *stateRefs) []state.Handle {
	hs := make([]state.Handle, len(docs))
	for i, d := range docs {
		hs[i] = state.Handle{Name: d.Name, Size: d.Size, CRC: d.CRC, First: d.First, Last: d.Last}
		refs.files[d.Name] = d.ref
		if d.Memory {
			refs.memory[d.Name] = true
		}
	}
	return hs
}

// packMagic begins every pack: name and format version.
const packMagic = "SDBPACK\x00"

// packHeaderBytes is the length of a pack's header: magic, format u32, count u32 (big-endian).
const packHeaderBytes = len(packMagic) + 8

// sealPack joins blobs into one object and returns their offsets: header, blobs, crc32c of all before.
func sealPack(blobs [][]byte) (data []byte, offsets []int64) {
	size := packHeaderBytes + 4
	for _, b := range blobs {
		size += len(b)
	}
	data = append(make([]byte, 0, size), packMagic...)
	data = binary.BigEndian.AppendUint32(data, packFormat)
	data = binary.BigEndian.AppendUint32(data, uint32(len(blobs)))
	for _, b := range blobs {
		offsets = append(offsets, int64(len(data)))
		data = append(data, b...)
	}
	return binary.BigEndian.AppendUint32(data, castagnoli(data)), offsets
}

// tagOf is the Seq of the HEAD that an object was written for, by its key; false for keys of other kinds.
func tagOf(key string) (uint64, bool) {
	for _, prefix := range []string{manifestPrefix, packPrefix, dataPrefix} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			digits, _, _ := strings.Cut(rest, "-")
			seq, err := strconv.ParseUint(digits, 10, 64)
			return seq, err == nil
		}
	}
	return 0, false
}
