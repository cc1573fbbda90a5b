package exec

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/streamdb/streamdb/checkpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/planner/plan"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/types"
)

// Files of rows in flight: docs/formats/channel-state.md.
const (
	inflightMagic  = "SDBCHAN\x00"
	inflightFormat = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// inflightFiles encodes what was in flight to the subtasks of a cut, that of several into one file: a failure of one is theirs, too, and is not counted
// among the failures of the job.
func (r *run) inflightFiles(c *cut) ([]state.Handle, error) {
	perFile := r.job.Settings().SubtasksPerFile
	var files []state.Handle
	var group []*taskCut
	var failed error
	flush := func() {
		if len(group) == 0 {
			return
		}
		if err := r.engine.cfg.Failpoints.Hit("exec/channel-state"); err != nil && failed == nil {
			failed = fmt.Errorf("%w: the file of what was in flight to %d subtasks: %w", checkpoint.ErrNotRunning, len(group), err)
		}
		data := encodeInflight(group)
		files = append(files, state.Handle{
			Name:   fmt.Sprintf("inflight/%d-%d", c.barrier.Checkpoint, len(files)),
			Inline: data, Size: int64(len(data)), CRC: crc32.Checksum(data, castagnoli),
		})
		group = nil
	}
	for _, p := range c.parts {
		if len(p.inflight) == 0 {
			continue
		}
		if group = append(group, p); len(group) >= max(1, perFile) {
			flush()
		}
	}
	flush()
	return files, failed
}

func encodeInflight(group []*taskCut) []byte {
	data := binary.BigEndian.AppendUint32([]byte(inflightMagic), inflightFormat)
	for i, p := range group {
		began := len(data)
		if i == 0 {
			began = -crc32.Size // what is there once is the first one's
		}
		for _, k := range p.inflight {
			data = binary.BigEndian.AppendUint32(data, k.node.plan.ID)
			data = binary.BigEndian.AppendUint32(data, uint32(p.task.index)) //nolint:gosec // below subtaskStride
			data = binary.BigEndian.AppendUint32(data, uint32(k.rows.Rows()))
			at := len(data)
			data = binary.BigEndian.AppendUint32(data, 0)
			for i := range k.rows.Rows() {
				row := k.rows.Row(i)
				data = binary.AppendVarint(data, k.rows.Weight(row))
				data = types.AppendRow(data, k.rows.Cols, row)
			}
			binary.BigEndian.PutUint32(data[at:], uint32(len(data)-at-4)) //nolint:gosec // bounded by the queues
		}
		p.stats.PersistedBytes = int64(len(data) - began)
	}
	return binary.BigEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
}

// section is what was in flight to one node in one subtask.
type section struct {
	node    uint32
	subtask int
	rows    int
	data    []byte
}

// decodeInflight checks a file and returns its sections.
func decodeInflight(name string, data []byte) ([]section, error) {
	bad := func(what string) error {
		return pgerr.Newf(pgerr.DataCorrupted, "rows in flight %q are corrupt: %s", name, what)
	}
	const head = len(inflightMagic) + 4
	if len(data) < head+4 || string(data[:len(inflightMagic)]) != inflightMagic {
		return nil, bad("they do not begin as such a file does")
	}
	if f := binary.BigEndian.Uint32(data[len(inflightMagic):]); f != inflightFormat {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "rows in flight %q have format version %d, this binary reads up to %d", name, f, inflightFormat).
			WithHint("They were written by a newer version of streamdb: use that version.")
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, castagnoli) != sum {
		return nil, bad("the checksum does not match")
	}
	var out []section
	for rest := body[head:]; len(rest) > 0; {
		if len(rest) < 16 {
			return nil, bad("a section is cut off")
		}
		s := section{node: binary.BigEndian.Uint32(rest), subtask: int(binary.BigEndian.Uint32(rest[4:])), rows: int(binary.BigEndian.Uint32(rest[8:]))}
		n := binary.BigEndian.Uint32(rest[12:])
		if rest = rest[16:]; uint64(n) > uint64(len(rest)) {
			return nil, bad("a section is cut off")
		}
		s.data, rest = rest[:n], rest[n:]
		out = append(out, s)
	}
	return out, nil
}

// chunks decodes the rows of a section.
func (s *section) chunks(ts []types.Type) ([]*types.Chunk, error) {
	var out []*types.Chunk
	var c *types.Chunk
	data := s.data
	for range s.rows {
		w, n := binary.Varint(data)
		if n <= 0 {
			return nil, pgerr.Newf(pgerr.DataCorrupted, "rows in flight to operator %d are corrupt", s.node)
		}
		if c == nil || c.N == types.MaxChunkRows {
			c = types.NewChunk(ts)
			out = append(out, c)
		}
		var err error
		if data, err = types.DecodeRow(data[n:], c.Cols); err != nil {
			return nil, err
		}
		c.PushWeight(w)
	}
	return out, nil
}

// loadInflight gives the subtasks what was in flight to them at the checkpoint. Rows of a hash exchange go to the subtask that has their keys now.
func (r *run) loadInflight() error {
	if !r.settling {
		return nil
	}
	nodes := map[uint32][]*node{} // by operator, in order of the subtasks
	for _, t := range r.subtasks {
		for _, n := range t.nodes {
			nodes[n.plan.ID] = append(nodes[n.plan.ID], n)
		}
	}
	for _, h := range r.from.Inflight {
		sections, err := decodeInflight(h.Name, h.Inline)
		if err != nil {
			return err
		}
		for _, s := range sections {
			to := nodes[s.node]
			if len(to) == 0 {
				return pgerr.Newf(pgerr.ObjectNotInPrerequisiteState, "rows that were in flight to operator %d have nowhere to go: the plan has no such operator", s.node).
					WithHint("To go on without them, set execution.state-recovery.without-channel-state.checkpoint-id to %d.", r.from.Checkpoint)
			}
			chunks, err := s.chunks(to[0].plan.Schema.Types())
			if err != nil {
				return err
			}
			for _, c := range chunks {
				r.settle(to, s.subtask, c)
			}
		}
	}
	return nil
}

// settle puts rows that were in flight to one of nodes where they belong now.
func (r *run) settle(nodes []*node, subtask int, c *types.Chunk) {
	p := nodes[0].plan
	var columns []int
	switch {
	case p.Kind == plan.KindExchange && p.Exchange.Dist == plan.DistHash:
		columns = p.Exchange.Columns
	case p.Kind == plan.KindMaterialize && p.Materialize.Order == nil:
		columns = p.Materialize.KeyColumns
	case p.Kind == plan.KindScan:
		n := nodes[subtask%len(nodes)]
		n.task.restored = append(n.task.restored, kept{n, c})
		return
	}
	if len(columns) == 0 || len(nodes) == 1 {
		nodes[0].task.restored = append(nodes[0].task.restored, kept{nodes[0], c})
		return
	}
	maxPar := r.engine.cfg.MaxPar
	hash := make([]uint64, c.N)
	types.HashRows(c, columns, hash)
	parts := make([]*types.Chunk, len(nodes))
	for i := range c.N {
		k := state.SubtaskOf(maxPar, len(nodes), types.KeyGroup(hash[i], maxPar))
		if parts[k] == nil {
			parts[k] = types.NewChunk(p.Schema.Types())
		}
		parts[k].AppendRow(c, i, c.Weight(i))
	}
	for k, part := range parts {
		if part != nil {
			nodes[k].task.restored = append(nodes[k].task.restored, kept{nodes[k], part})
		}
	}
}

// takeRestored takes in what was in flight at the checkpoint that the run goes on from.
func (t *subtask) takeRestored() error {
	for _, k := range t.restored {
		err := error(nil)
		if t.sink != nil && k.node == t.root {
			err = t.sink.Process(0, k.rows, k.node)
		} else {
			err = k.node.Emit(k.rows)
		}
		if err != nil {
			return err
		}
	}
	t.restored = nil
	return nil
}
