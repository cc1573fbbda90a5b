package connector

import (
	"errors"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// OptionConnector is the option that names the connector; every source has it.
const OptionConnector = "connector"

// OptionIdleTimeout is after how long without a row a split no longer holds the watermark back; "0": never. Every source has it.
const OptionIdleTimeout = "scan.watermark.idle-timeout"

// DefaultIdleTimeout is the default of OptionIdleTimeout.
const DefaultIdleTimeout = 30 * time.Second

// The options of watermark alignment, which every source has: a split whose watermark is more than OptionMaxDrift ahead of the slowest one rests. The slowest one is
// looked for every OptionAlignInterval, among the splits of the source, or of all sources of the job with the same OptionAlignGroup.
const (
	OptionAlignGroup    = "scan.watermark.alignment.group"
	OptionMaxDrift      = "scan.watermark.alignment.max-drift"
	OptionAlignInterval = "scan.watermark.alignment.update-interval"
)

// DefaultAlignInterval is the default of OptionAlignInterval.
const DefaultAlignInterval = time.Second

// commonOptions are those that every source has.
var commonOptions = []Option{
	{
		Name: OptionIdleTimeout, Default: DefaultIdleTimeout.String(), Check: isSpan,
		Doc: "After this time without a row a split no longer holds the watermark back, for example 5s; 0: never.",
	},
	{
		Name: OptionMaxDrift, Check: isSpan,
		Doc: "A split whose watermark is further ahead of the slowest one than this time rests, for example 1min. Without it splits are read as fast as they can be.",
	},
	{
		Name: OptionAlignGroup, Check: func(string) error { return nil },
		Doc: "Sources of one view with the same name here wait for each other's slowest split, others for that of their own.",
	},
	{
		Name: OptionAlignInterval, Default: DefaultAlignInterval.String(), Check: isSpan,
		Doc: "How often the slowest split is looked for.",
	},
}

func isSpan(v string) error {
	_, err := ParseSpan(v)
	return err
}

// ParseSpan reads a length of time among the common options.
func ParseSpan(v string) (time.Duration, error) {
	v = strings.ReplaceAll(v, " ", "")
	if minutes, ok := strings.CutSuffix(v, "min"); ok {
		v = minutes + "m"
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		return 0, pgerr.Newf(pgerr.InvalidParameterValue, "%q is not a length of time", v)
	}
	return d, nil
}

// FormatPlain is the only FORMAT of sources: each row is an insertion.
const FormatPlain = "PLAIN"

// Encoding describes one ENCODE: its name and the options in parentheses after it.
type Encoding struct {
	Name    string
	Options []Option
}

// Registry is an immutable set of connectors. It may be used by any number of goroutines.
type Registry struct {
	byName    map[string]Connector
	names     []string
	encodings []Encoding
	sinks     []SinkConnector
}

// NewRegistry returns a registry of the given connectors. Where two have one name the later wins.
func NewRegistry(cs ...Connector) *Registry {
	r := &Registry{byName: make(map[string]Connector, len(cs))}
	for _, c := range cs {
		r.byName[c.Name()] = c
	}
	for n := range r.byName {
		r.names = append(r.names, n)
	}
	sort.Strings(r.names)
	return r
}

// WithEncodings returns a registry that also checks ENCODE and its options against the given list.
func (r *Registry) WithEncodings(es ...Encoding) *Registry {
	c := *r
	c.encodings = es
	return &c
}

// Names lists the connectors in alphabetical order.
func (r *Registry) Names() []string { return slices.Clone(r.names) }

// Encodings lists the encodings that Validate accepts.
func (r *Registry) Encodings() []Encoding { return slices.Clone(r.encodings) }

// Lookup returns the connector called name.
func (r *Registry) Lookup(name string) (Connector, error) {
	if c, ok := r.byName[name]; ok {
		return c, nil
	}
	if name == "" {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "option \"%s\" is missing", OptionConnector).
			WithHint("Available connectors: %s.", strings.Join(r.names, ", "))
	}
	e := pgerr.Newf(pgerr.UndefinedObject, "connector \"%s\" does not exist", name)
	if n := Nearest(name, r.names); n != "" {
		return nil, e.WithHint("Perhaps you meant \"%s\". Available connectors: %s.", n, strings.Join(r.names, ", "))
	}
	return nil, e.WithHint("Available connectors: %s.", strings.Join(r.names, ", "))
}

// Validate checks the options, FORMAT and ENCODE of a source against what its connector declares. Columns are checked by
// Connector.Schema.
func (r *Registry) Validate(cfg *SourceConfig) error {
	c, err := r.Lookup(cfg.Options[OptionConnector])
	if err != nil {
		return err
	}
	if err := checkOptions("connector \""+c.Name()+"\"", append(slices.Clone(c.Options()), commonOptions...), cfg.Options); err != nil {
		return err
	}
	for _, name := range []string{OptionAlignGroup, OptionAlignInterval} {
		if _, given := cfg.Options[name]; given && cfg.Options[OptionMaxDrift] == "" {
			return pgerr.Newf(pgerr.InvalidParameterValue, "option \"%s\" needs \"%s\"", name, OptionMaxDrift)
		}
	}
	switch {
	case !c.NeedsEncode() && (cfg.Encode != "" || cfg.Format != "" && !strings.EqualFold(cfg.Format, FormatPlain)):
		return pgerr.Newf(pgerr.InvalidParameterValue, "connector \"%s\" makes typed rows and takes no FORMAT … ENCODE …", c.Name()).
			WithHint("Leave FORMAT and ENCODE out.")
	case !c.NeedsEncode():
		return nil
	case cfg.Encode == "":
		return pgerr.Newf(pgerr.InvalidParameterValue, "connector \"%s\" needs FORMAT … ENCODE …", c.Name()).
			WithHint("For example: FORMAT PLAIN ENCODE JSON.")
	case cfg.Format != "" && !strings.EqualFold(cfg.Format, FormatPlain):
		return pgerr.Newf(pgerr.FeatureNotSupported, "FORMAT %s is not supported by connector \"%s\"", cfg.Format, c.Name()).
			WithHint("Use FORMAT PLAIN.")
	}
	var names []string
	for _, e := range r.encodings {
		if strings.EqualFold(e.Name, cfg.Encode) {
			return checkOptions("ENCODE "+e.Name, e.Options, cfg.EncodeOptions)
		}
		names = append(names, e.Name)
	}
	if len(names) == 0 {
		return nil
	}
	return pgerr.Newf(pgerr.FeatureNotSupported, "ENCODE %s is not supported", cfg.Encode).
		WithHint("Supported encodings: %s.", strings.Join(names, ", "))
}

// PatternPart is what a "*" in an option's name stands for: one or more characters, as in fields.*.kind.
const PatternPart = "*"

func checkOptions(of string, known []Option, given map[string]string) error {
	keys := make([]string, 0, len(given))
	for k := range given {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		if k == OptionConnector {
			continue
		}
		o := findOption(known, k)
		if o == nil {
			return unknownOption(of, known, k)
		}
		if o.Check == nil {
			continue
		}
		if err := o.Check(given[k]); err != nil {
			var words pgerr.NotOneOf
			if errors.As(err, &words) {
				return words.Option(k, given[k])
			}
			e := pgerr.Wrap(pgerr.InvalidParameterValue, err, "invalid value for option \"%s\"", k)
			if h := pgerr.From(err).Hint; h != "" {
				return e.WithHint("%s", h)
			}
			return e.WithHint("%s", o.Doc)
		}
	}
	for _, o := range known {
		if _, ok := given[o.Name]; o.Required && !ok {
			return pgerr.Newf(pgerr.InvalidParameterValue, "option \"%s\" of %s is missing", o.Name, of).WithHint("%s", o.Doc)
		}
	}
	return nil
}

func findOption(known []Option, name string) *Option {
	for i := range known {
		if known[i].Name == name || matchPattern(known[i].Name, name) {
			return &known[i]
		}
	}
	return nil
}

func matchPattern(pattern, name string) bool {
	head, tail, ok := strings.Cut(pattern, PatternPart)
	return ok && len(name) > len(head)+len(tail) && strings.HasPrefix(name, head) && strings.HasSuffix(name, tail)
}

func unknownOption(of string, known []Option, name string) error {
	names := make([]string, 0, len(known))
	for _, o := range known {
		names = append(names, o.Name)
	}
	e := pgerr.Newf(pgerr.InvalidParameterValue, "unknown option \"%s\" of %s", name, of)
	if n := Nearest(name, names); n != "" {
		return e.WithHint("Perhaps you meant \"%s\".", n)
	}
	if len(names) == 0 {
		return e.WithHint("%s has no options.", of)
	}
	return e.WithHint("Known options: %s.", strings.Join(names, ", "))
}

// Nearest returns the candidate that is spelled most like name, "" when none is near.
func Nearest(name string, candidates []string) string {
	best, bestDist := "", len(name)/3+2
	for _, c := range candidates {
		d := editDistance(strings.ToLower(name), strings.ToLower(c))
		if strings.HasSuffix(c, "."+name) {
			d = min(d, 1) // the prefix was forgotten
		}
		if d < bestDist {
			best, bestDist = c, d
		}
	}
	return best
}

// maxNameCompared bounds the work of a comparison, in bytes.
const maxNameCompared = 128

func editDistance(a, b string) int {
	a, b = a[:min(len(a), maxNameCompared)], b[:min(len(b), maxNameCompared)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diag, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diag+cost)
		}
	}
	return row[len(b)]
}
