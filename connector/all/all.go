// Package all lists the connectors that the server brings.
package all

import (
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/datagen"
	"github.com/streamdb/streamdb/connector/file"
	"github.com/streamdb/streamdb/connector/format"
	"github.com/streamdb/streamdb/connector/nexmark"
	"github.com/streamdb/streamdb/connector/postgres"
)

// Builtin returns a registry of all built-in connectors and encodings.
func Builtin() *connector.Registry {
	return connector.NewRegistry(datagen.New(), file.New(), nexmark.New()).WithEncodings(format.Encodings()...).WithSinks(file.NewSink(), postgres.New())
}
