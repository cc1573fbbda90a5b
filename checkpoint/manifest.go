package checkpoint

import (
	"time"

	"github.com/streamdb/streamdb/state"
)

// Manifest is a completed checkpoint of the whole database: the newest published state of every job, and the catalog. It is immutable.
type Manifest struct {
	ID      uint64 // highest checkpoint id in it
	Seq     uint64 // of the HEAD that published it
	Epoch   uint64
	Created time.Time
	Object  string // its key

	CatalogVersion uint64
	Catalog        []byte
	Jobs           map[uint64]*JobState

	catalogRef *ref
	size       int64
	crc        uint32
}

// ref tells where bytes are: inline in the manifest, or a range of an object.
type ref struct {
	Inline []byte `json:"inline,omitempty"`
	Object string `json:"object,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Size   int64  `json:"size"`
	CRC    uint32 `json:"crc32c"`
}

// stateRefs are the places of a job state's bytes.
type stateRefs struct {
	files map[string]fileRef // by handle name
	blobs map[string]ref     // positions ("p/" + name) and operator states ("o/" + name)
	// since is the checkpoint that last changed the state.
	since uint64
}

type fileRef struct {
	ref
	// inline: the handle had its bytes inline and gets them so at a restore; otherwise it is a file.
	inline bool
}

var _ = state.Handle{}
