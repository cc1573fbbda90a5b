package optest

import "github.com/streamdb/streamdb/internal/pgerr"

func codeOf(err error) string { return string(pgerr.CodeOf(err)) }
