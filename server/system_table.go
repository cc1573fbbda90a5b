package server

import (
	"context"

	"github.com/streamdb/streamdb/exec"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// systemCatalogKey is the row of the engine's system table that names the newest version of the catalog committed together with rows
// (column a). All other keys are ids of sequences.
const systemCatalogKey = 0

// systemKey is the encoded key of a row of the system table.
func systemKey(key int64) []byte {
	return types.AppendKeyDatum(nil, types.Datum{Type: types.Int8, Int: key}, false, false)
}

func decodeSystemRow(row []byte) (a, b int64, err error) {
	d, _, err := types.DecodeDatumRow(row, []types.Type{types.Int8, types.Int8, types.Int8})
	if err != nil {
		return 0, 0, err
	}
	return d[1].Int, d[2].Int, nil
}

func encodeSystemRow(key, a, b int64) []byte {
	return types.AppendDatumRow(nil, []types.Datum{{Type: types.Int8, Int: key}, {Type: types.Int8, Int: a}, {Type: types.Int8, Int: b}})
}

// systemRow reads a row of the system table.
func (s *Server) systemRow(key int64) (row []byte, err error) {
	rel, ok := s.engine.Relation(exec.SystemTableID)
	if !ok {
		return nil, pgerr.Newf(pgerr.InternalError, "the system table is not open")
	}
	v := rel.Latest()
	if v == nil {
		return nil, pgerr.Newf(pgerr.InternalError, "the system table has no content")
	}
	defer v.Release()
	row, ok, err = v.Get(0, systemKey(key))
	if err != nil || !ok {
		return nil, err
	}
	return append([]byte(nil), row...), nil
}

// systemWrite is the change that sets a row of the system table. For each key one goroutine at a time may be between it and the commit.
func (s *Server) systemWrite(key, a, b int64) (exec.TableWrite, error) {
	old, err := s.systemRow(key)
	if err != nil {
		return exec.TableWrite{}, err
	}
	rel, _ := s.engine.Relation(exec.SystemTableID)
	return exec.TableWrite{Table: rel, Changes: []exec.Change{{Key: systemKey(key), Old: old, New: encodeSystemRow(key, a, b)}}}, nil
}

// systemDelete removes a row of the system table, if there is one.
func (s *Server) systemDelete(ctx context.Context, key int64) error {
	old, err := s.systemRow(key)
	if err != nil || old == nil {
		return err
	}
	rel, _ := s.engine.Relation(exec.SystemTableID)
	_, err = s.engine.Commit(ctx, []exec.TableWrite{{Table: rel, Changes: []exec.Change{{Key: systemKey(key), Old: old}}}})
	return err
}

// openSystemTable opens the server's own table and settles, from what it and the write-ahead log say, which catalog is valid.
func (s *Server) openSystemTable(ctx context.Context) error {
	if _, err := s.engine.OpenSystemTable(ctx); err != nil {
		return err
	}
	if s.cfg.MemoryOnly {
		return nil
	}
	if pending, err := readCatalog(s.pendingCatalog()); err != nil || pending == nil {
		return err
	}
	version := int64(0)
	row, err := s.systemRow(systemCatalogKey)
	if err != nil {
		return err
	}
	take := func(row []byte) error {
		a, _, err := decodeSystemRow(row)
		version = max(version, a)
		return err
	}
	if row != nil {
		if err := take(row); err != nil {
			return err
		}
	}
	key := string(systemKey(systemCatalogKey))
	if err := s.engine.Logged(exec.SystemTableID, func(k, row []byte) error {
		if string(k) != key || row == nil {
			return nil
		}
		return take(row)
	}); err != nil {
		return err
	}
	return s.adoptPending(version)
}
