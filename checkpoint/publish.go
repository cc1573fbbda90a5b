package checkpoint

import (
	"context"
	"errors"
	"io"

	"github.com/rs/zerolog"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/state"
	"github.com/streamdb/streamdb/storage/object"
)

// ErrFenced: another server has taken the checkpoint store over; this one must stop.
var ErrFenced = errors.New("another server has taken over the checkpoint store")

type published struct {
	manifest *Manifest
	uploaded map[uint64]int64
}
type publisher struct{ store object.Store }

func newPublisher(store object.Store, holder string, log zerolog.Logger, fp *failpoint.Set) *publisher {
	return &publisher{store: store}
}
func (p *publisher) claim(ctx context.Context) (*Manifest, uint64, error) {
	return nil, 1, errors.ErrUnsupported
}
func (p *publisher) reserve(ctx context.Context, id uint64) error { return errors.ErrUnsupported }
func (p *publisher) publish(ctx context.Context, b *batch) (*published, error) {
	return nil, errors.ErrUnsupported
}
func (p *publisher) sweep(ctx context.Context) error { return nil }
func (p *publisher) latest() *Manifest               { return nil }

// Load returns the newest completed checkpoint, nil when there is none.
func Load(ctx context.Context, store object.Store) (*Manifest, error) {
	return nil, errors.ErrUnsupported
}

// Fetch makes the files of s local in dir.
func Fetch(ctx context.Context, store object.Store, s *JobState, dir string) (*state.Snapshot, error) {
	return nil, errors.ErrUnsupported
}

// List prints the retained checkpoints.
func List(ctx context.Context, store object.Store, w io.Writer) error { return errors.ErrUnsupported }

// Inspect prints one checkpoint; id 0: the newest.
func Inspect(ctx context.Context, store object.Store, id uint64, w io.Writer) error {
	return errors.ErrUnsupported
}

// Verify checks every referenced object.
func Verify(ctx context.Context, store object.Store, w io.Writer) (problems int, err error) {
	return 0, errors.ErrUnsupported
}

// GC removes unreferenced objects.
func GC(ctx context.Context, store object.Store, dryRun bool, w io.Writer) error {
	return errors.ErrUnsupported
}
