// Package all lists the connectors that the server brings.
package all

import (
	"github.com/streamdb/streamdb/connector"
	"github.com/streamdb/streamdb/connector/nexmark"
)

// Builtin returns a registry of all built-in connectors.
func Builtin() *connector.Registry {
	return connector.NewRegistry(nexmark.New())
}
