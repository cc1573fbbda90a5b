package object

import (
	"context"
	"errors"
)

// Open opens the store that url names: file:///dir, memory://name, or s3://bucket/prefix?endpoint=…&region=…&force_path_style=true.
func Open(ctx context.Context, url string) (Store, error) { return nil, errors.ErrUnsupported }

// Probe checks that the store's conditional writes work, as fencing needs.
func Probe(ctx context.Context, s Store) error { return errors.ErrUnsupported }
