package connector

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

type fake struct {
	name   string
	encode bool
}

func (f fake) Name() string { return f.name }

func (fake) Options() []Option {
	return []Option{
		{Name: "rate.limit", Check: CheckInt(0, 10), Doc: "A rate."},
		{Name: "path", Required: true, Doc: "A path."},
		{Name: "fields.*.kind", Check: CheckOneOf("a", "b")},
	}
}
func (f fake) NeedsEncode() bool                                   { return f.encode }
func (fake) Schema(cfg *SourceConfig) (types.Schema, error)        { return cfg.Columns, nil }
func (fake) Source(context.Context, *SourceConfig) (Source, error) { return nil, nil }
func registry() *Registry                                          { return NewRegistry(fake{"file", true}, fake{"datagen", false}) }

func options(kv ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		m[kv[i]] = kv[i+1]
	}
	return m
}

func TestLookup(t *testing.T) {
	r := registry()
	require.Equal(t, []string{"datagen", "file"}, r.Names())
	c, err := r.Lookup("file")
	require.NoError(t, err)
	require.Equal(t, "file", c.Name())
	_, err = r.Lookup("flie")
	require.Equal(t, pgerr.UndefinedObject, pgerr.CodeOf(err))
	require.Equal(t, "Perhaps you meant \"file\". Available connectors: datagen, file.", pgerr.From(err).Hint)
	_, err = r.Lookup("snowflake")
	require.Equal(t, "Available connectors: datagen, file.", pgerr.From(err).Hint)
	_, err = r.Lookup("")
	require.Equal(t, pgerr.InvalidParameterValue, pgerr.CodeOf(err))
}

func TestValidate(t *testing.T) {
	r := registry().WithEncodings(Encoding{Name: "JSON"}, Encoding{Name: "CSV", Options: []Option{{Name: "delimiter"}}})
	gen := func(kv ...string) *SourceConfig {
		return &SourceConfig{Options: options(append(kv, "connector", "datagen", "path", "p")...)}
	}
	file := func(format, encode string, kv ...string) *SourceConfig {
		return &SourceConfig{Options: options("connector", "file", "path", "p"), Format: format, Encode: encode, EncodeOptions: options(kv...)}
	}
	for i, c := range []struct {
		cfg  *SourceConfig
		code pgerr.Code
		hint string
	}{
		{gen(), "", ""},
		{gen("rate.limit", "5", "fields.x.kind", "A"), "", ""},
		{gen("rate.limit", "11"), pgerr.InvalidParameterValue, "A rate."},
		{gen("rate.limit", "x"), pgerr.InvalidParameterValue, "A rate."},
		{gen("rate.limt", "5"), pgerr.InvalidParameterValue, "Perhaps you meant \"rate.limit\"."},
		{gen("limit", "5"), pgerr.InvalidParameterValue, "Perhaps you meant \"rate.limit\"."},
		{gen("fields..kind", "a"), pgerr.InvalidParameterValue, "Perhaps you meant \"fields.*.kind\"."},
		{gen("fields.x.kind", "c"), pgerr.InvalidParameterValue, ""},
		{gen("something else", "5"), pgerr.InvalidParameterValue, "Known options: rate.limit, path, fields.*.kind, scan.watermark.idle-timeout, scan.watermark.alignment.max-drift, scan.watermark.alignment.group, scan.watermark.alignment.update-interval."},
		{gen("scan.watermark.alignment.max-drift", "1min", "scan.watermark.alignment.group", "g", "scan.watermark.alignment.update-interval", "100 ms"), "", ""},
		{gen("scan.watermark.alignment.max-drift", "soon"), pgerr.InvalidParameterValue, "A split whose watermark is further ahead of the slowest one than this time rests, for example 1min. Without it splits are read as fast as they can be."},
		{gen("scan.watermark.alignment.group", "g"), pgerr.InvalidParameterValue, ""},
		{&SourceConfig{Options: options("connector", "datagen")}, pgerr.InvalidParameterValue, "A path."},
		{&SourceConfig{Options: options("connector", "datagen", "path", ""), Encode: "JSON"}, pgerr.InvalidParameterValue, "Leave FORMAT and ENCODE out."},
		{file("PLAIN", "JSON"), "", ""},
		{file("", "csv", "delimiter", ","), "", ""},
		{file("", ""), pgerr.InvalidParameterValue, "For example: FORMAT PLAIN ENCODE JSON."},
		{file("DEBEZIUM", "JSON"), pgerr.FeatureNotSupported, "Use FORMAT PLAIN."},
		{file("PLAIN", "AVRO"), pgerr.FeatureNotSupported, "Supported encodings: JSON, CSV."},
		{file("PLAIN", "CSV", "delimeter", ","), pgerr.InvalidParameterValue, "Perhaps you meant \"delimiter\"."},
		{file("PLAIN", "JSON", "x", ","), pgerr.InvalidParameterValue, "ENCODE JSON has no options."},
	} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			err := r.Validate(c.cfg)
			require.Equal(t, c.code, pgerr.CodeOf(err), "%v", err)
			if err != nil {
				require.Equal(t, c.hint, pgerr.From(err).Hint)
			}
		})
	}
}
