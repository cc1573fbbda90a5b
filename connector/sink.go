package connector

import (
	"context"
	"slices"
	"sort"
	"strings"

	"github.com/streamdb/streamdb/internal/failpoint"
	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// SinkMode tells what a sink makes of changed and deleted rows. Its text is stored.
type SinkMode string

// The modes, as FORMAT and the option type name them.
const (
	// AppendOnly sinks take new rows only.
	AppendOnly SinkMode = "append-only"
	// Upsert sinks take the last row of each key, and that it is gone.
	Upsert SinkMode = "upsert"
	// Debezium sinks take rows as they were and as they are.
	Debezium SinkMode = "debezium"
)

// The options that every sink has.
const (
	OptionType            = "type"
	OptionForceAppendOnly = "force_append_only"
	OptionPrimaryKey      = "primary_key"
	OptionSnapshot        = "snapshot"
	OptionGuarantee       = "delivery_guarantee"
	OptionTakeOver        = "take_over"
)

// The values of OptionGuarantee.
const (
	ExactlyOnce = "exactly_once"
	AtLeastOnce = "at_least_once"
)

// SinkOptions are the options that every sink has.
func SinkOptions() []Option {
	return []Option{
		{
			Name: OptionType, Check: CheckOneOf(string(AppendOnly), string(Upsert), string(Debezium)),
			Doc: "append-only, upsert or debezium: what FORMAT PLAIN, UPSERT and DEBEZIUM say.",
		},
		{Name: OptionForceAppendOnly, Default: "false", Check: CheckBool, Doc: "Only new rows, and the new form of changed ones, are written; what goes is left out."},
		{Name: OptionPrimaryKey, Doc: "The columns that tell the rows of the target apart, separated by commas. Left out: those that tell the relation's rows apart."},
		{Name: OptionSnapshot, Default: "true", Check: CheckBool, Doc: "false: what the relation holds when the sink is created is left out."},
		{
			Name: OptionGuarantee, Default: ExactlyOnce, Check: CheckOneOf(ExactlyOnce, AtLeastOnce),
			Doc: "exactly_once: rows appear with the checkpoint that has them. at_least_once: at once, and perhaps once more after a crash.",
		},
		{Name: OptionTakeOver, Doc: "Where the target is another server's: the token that the error names. This server then goes on writing there, whatever came between, and the other one stops."},
	}
}

// SinkConfig is everything a CREATE SINK says, after validation against Options.
type SinkConfig struct {
	Name string
	// ID is the sink's own among those of all servers, and never changes: it names transactions in the target.
	ID            string
	Options       map[string]string
	Format        string // PLAIN, UPSERT, DEBEZIUM; empty when the connector writes typed rows itself
	Encode        string
	EncodeOptions map[string]string
	Columns       types.Schema
	Key           []int // the primary key, nil: none
	Mode          SinkMode
	ExactlyOnce   bool
	Text          *types.Format // text forms and time zone
	// Writer is as whom the sink writes.
	Writer Identity
	// Dir is a local folder of the job's own for what is not in the target yet.
	Dir        string
	Failpoints *failpoint.Set
}

// SinkConnector makes sinks of one kind.
type SinkConnector interface {
	// Name is the value of WITH (connector = …).
	Name() string
	// Options lists all options it knows beyond those that every sink has. Nobody is shown the values of those with "password" in their names, nor passwords in URLs.
	Options() []Option
	// Encodings are the values of ENCODE; none when it writes typed rows.
	Encodings() []Encoding
	// Modes lists what it can do.
	Modes() []SinkMode
	// Check refuses a target that is not there or whose columns do not fit. It may ask the outside world, no longer than ctx.
	Check(ctx context.Context, cfg *SinkConfig) error
	// Sink opens the sink without asking the outside world.
	Sink(cfg *SinkConfig) (Sink, error)
}

// Sink writes rows in transactions, of two phases: what a writer has sealed is durable after the flush, invisible, and named by committables; committing those
// makes it visible. Committables are kept with the job's state: they survive whatever the job does.
type Sink interface {
	// Writer makes the writer of a subtask. A sink that is opened again does not know those of before.
	Writer(subtask int) (SinkWriter, error)
	// Recover is called once before anything is committed, by a job that goes on after epoch, 0 when it begins: the target is made this server's (SinkConfig.TakeOver), and
	// whatever transactions there are that known does not name, and that the sink has not begun itself since it was opened, are aborted.
	Recover(ctx context.Context, epoch uint64, known *Committables) error
	// Commit makes visible what the committables name, all of what the sink wrote up to epoch that may not be committed. It is idempotent: some, or all, may have
	// been committed before. An error that matches ErrSinkTaken is for good.
	Commit(ctx context.Context, epoch uint64, list *Committables) error
	// Abandon clears away what was not committed, and what the target knows of the sink, unless it is another server's.
	Abandon(ctx context.Context) error
	Close() error
}

// SinkWriter writes the rows of one subtask. It is used by one goroutine, except for the functions that Seal returns.
type SinkWriter interface {
	// Write takes rows of weight +1, to be added or put in the place of those with their key, and −1, of rows that go. In Debezium mode a row that goes may be
	// followed by what comes in its place. It returns committables that became complete.
	Write(ctx context.Context, c *types.Chunk) ([][]byte, error)
	// Seal ends the transaction, which gets the name. What committables stand for is durable when flush, which may be nil, has returned without an error; it is called
	// again after an error, and beside Write and Seal.
	Seal(name string) (committables [][]byte, flush func(context.Context) error, err error)
	// Close gives up what was not sealed.
	Close() error
}

// Committables is a list of committables in the order in which their rows were written. Those of one epoch and subtask come in the order of Write and Seal.
type Committables struct {
	Len  int
	Last uint64 // epoch of the last one, 0: there is none
	// Each calls fn with all of them, and the epoch that each belongs to, until one returns an error. The bytes are lent.
	Each func(fn func(epoch uint64, c []byte) error) error
}

// WithSinks returns a registry that has the given sinks, too.
func (r *Registry) WithSinks(cs ...SinkConnector) *Registry {
	c := *r
	c.sinks = cs
	return &c
}

// Sinks lists the sink connectors.
func (r *Registry) Sinks() []SinkConnector { return slices.Clone(r.sinks) }

// LookupSink returns the sink connector called name.
func (r *Registry) LookupSink(name string) (SinkConnector, error) {
	var names []string
	for _, c := range r.sinks {
		if c.Name() == name {
			return c, nil
		}
		names = append(names, c.Name())
	}
	sort.Strings(names)
	list := strings.Join(names, ", ")
	if name == "" {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "option \"%s\" is missing", OptionConnector).WithHint("Available sinks: %s.", list)
	}
	if _, ok := r.byName[name]; ok {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "connector \"%s\" has no sink", name).WithHint("Available sinks: %s.", list)
	}
	e := pgerr.Newf(pgerr.UndefinedObject, "connector \"%s\" does not exist", name)
	if n := Nearest(name, names); n != "" {
		return nil, e.WithHint("Perhaps you meant \"%s\". Available sinks: %s.", n, list)
	}
	return nil, e.WithHint("Available sinks: %s.", list)
}

// formats are the modes that FORMAT names.
func formats() map[string]SinkMode {
	return map[string]SinkMode{FormatPlain: AppendOnly, "UPSERT": Upsert, "DEBEZIUM": Debezium}
}

// ValidateSink checks the options, FORMAT and ENCODE of a sink against what its connector declares, and sets its mode, its guarantee and, from the option, its key.
func (r *Registry) ValidateSink(cfg *SinkConfig) error {
	c, err := r.LookupSink(cfg.Options[OptionConnector])
	if err != nil {
		return err
	}
	of := "sink connector \"" + c.Name() + "\""
	if err := checkOptions(of, append(slices.Clone(c.Options()), SinkOptions()...), cfg.Options); err != nil {
		return err
	}
	if err := sinkKey(cfg); err != nil {
		return err
	}
	if err := sinkMode(c, cfg); err != nil {
		return err
	}
	cfg.ExactlyOnce = !strings.EqualFold(cfg.Options[OptionGuarantee], AtLeastOnce)
	return sinkEncoding(c, cfg)
}

func sinkMode(c SinkConnector, cfg *SinkConfig) error {
	cfg.Mode = SinkMode(strings.ToLower(cfg.Options[OptionType]))
	if cfg.Format != "" {
		m, ok := formats()[strings.ToUpper(cfg.Format)]
		if !ok || !slices.Contains(c.Modes(), m) {
			return pgerr.Newf(pgerr.FeatureNotSupported, "FORMAT %s is not supported by sink connector \"%s\"", cfg.Format, c.Name())
		}
		if cfg.Mode != "" && cfg.Mode != m {
			return pgerr.Newf(pgerr.InvalidParameterValue, "option \"%s\" = '%s' contradicts FORMAT %s", OptionType, cfg.Mode, cfg.Format)
		}
		cfg.Mode = m
	}
	if cfg.Mode == "" {
		cfg.Mode = AppendOnly
		if cfg.Key != nil && len(c.Encodings()) == 0 {
			cfg.Mode = Upsert
		}
	}
	switch {
	case !slices.Contains(c.Modes(), cfg.Mode):
		return pgerr.Newf(pgerr.FeatureNotSupported, "option \"%s\" = '%s' is not supported by sink connector \"%s\"", OptionType, cfg.Mode, c.Name())
	case cfg.Mode == Upsert && cfg.Key == nil:
		return pgerr.Newf(pgerr.InvalidParameterValue, "an upsert sink needs a primary key").
			WithHint("Name the columns that tell its rows apart: %s = 'column, ..'.", OptionPrimaryKey)
	}
	if v := (Values{Options: cfg.Options}); v.Bool(false, OptionForceAppendOnly) && cfg.Mode != AppendOnly {
		return pgerr.Newf(pgerr.InvalidParameterValue, "option \"%s\" is for append-only sinks", OptionForceAppendOnly)
	}
	return nil
}

func sinkEncoding(c SinkConnector, cfg *SinkConfig) error {
	known := c.Encodings()
	switch {
	case len(known) == 0 && (cfg.Encode != "" || cfg.Format != ""):
		return pgerr.Newf(pgerr.InvalidParameterValue, "sink connector \"%s\" writes typed rows and takes no FORMAT … ENCODE …", c.Name()).
			WithHint("Leave FORMAT and ENCODE out; the option \"%s\" tells what becomes of changes.", OptionType)
	case len(known) == 0:
		return nil
	case cfg.Encode == "":
		return pgerr.Newf(pgerr.InvalidParameterValue, "sink connector \"%s\" needs FORMAT … ENCODE …", c.Name()).WithHint("For example: FORMAT PLAIN ENCODE JSON.")
	}
	var names []string
	for _, e := range known {
		if strings.EqualFold(e.Name, cfg.Encode) {
			return checkOptions("ENCODE "+e.Name, e.Options, cfg.EncodeOptions)
		}
		names = append(names, e.Name)
	}
	return pgerr.Newf(pgerr.FeatureNotSupported, "ENCODE %s is not supported by sink connector \"%s\"", cfg.Encode, c.Name()).
		WithHint("Supported encodings: %s.", strings.Join(names, ", "))
}

// KeyNames are the names in a value of the option primary_key.
func KeyNames(list string) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		names = append(names, strings.Trim(strings.TrimSpace(name), `"`))
	}
	return names
}

// sinkKey finds the columns of the option primary_key.
func sinkKey(cfg *SinkConfig) error {
	list, ok := cfg.Options[OptionPrimaryKey]
	if !ok {
		return nil
	}
	cfg.Key = nil
	for _, name := range KeyNames(list) {
		i := slices.IndexFunc(cfg.Columns, func(c types.Column) bool { return c.Name == name })
		if i < 0 {
			return pgerr.Newf(pgerr.UndefinedColumn, "column \"%s\" of option \"%s\" does not exist", name, OptionPrimaryKey)
		}
		if slices.Contains(cfg.Key, i) {
			return pgerr.Newf(pgerr.DuplicateColumn, "column \"%s\" appears twice in option \"%s\"", name, OptionPrimaryKey)
		}
		cfg.Key = append(cfg.Key, i)
	}
	return nil
}
