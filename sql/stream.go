package sql

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
)

// streamStatement parses EXPLAIN, COPY, maintenance, privileges and streamdb's own statements; nil when t begins none of them.
func (p *parser) streamStatement(t *lex.Token) Statement {
	switch t.Val {
	case "explain":
		p.I++
		return p.explain()
	case "copy":
		p.I++
		return p.copy()
	case "checkpoint":
		p.I++
		c := &Checkpoint{}
		if !p.Is("with") {
			c.Object = p.optName()
		}
		c.Options = p.options()
		return c
	case "flush":
		p.I++
		return &Flush{}
	case "wait":
		p.I++
		return &Wait{Object: p.optName()}
	case "pause":
		p.I++
		return &Pause{Object: p.optName()}
	case "resume":
		p.I++
		return &Resume{Object: p.optName()}
	case "recover":
		p.I++
		return &Recover{}
	case "subscribe":
		p.I++
		return p.subscribe()
	case "cancel":
		p.I++
		return p.cancelJobs()
	case "vacuum":
		p.I++
		v := &Vacuum{}
		v.Options, v.Tables = p.maintenance()
		return v
	case "analyze", "analyse":
		p.I++
		a := &Analyze{}
		a.Options, a.Tables = p.maintenance()
		return a
	case "grant", "revoke":
		p.I++
		return p.grant(t.Val == "revoke")
	case "reassign":
		p.I++
		return p.reassignOwned()
	case "lock":
		p.I++
		return p.lock()
	}
	return nil
}

// optName parses an optional name, with an optional kind of object before it.
func (p *parser) optName() *Name {
	if p.Is(";") || p.Cur().K == lex.EOF || p.Accept("all") {
		return nil
	}
	switch {
	case p.IsN("materialized", "view"):
		p.I += 2
	case p.Any("table", "view", "source", "sink", "index", "job") && p.Peek(1).IsName("UC"):
		p.I++
	}
	n := p.name()
	return &n
}

func (p *parser) cancelJobs() Statement {
	if !p.Accept("jobs") {
		p.Expect("job")
	}
	c := &CancelJobs{}
	for {
		t := p.Cur()
		if t.K != lex.Int && t.K != lex.Str && !t.IsName("UC") {
			p.Syntax()
		}
		p.I++
		c.IDs = append(c.IDs, t.Val)
		if !p.Accept(",") {
			return c
		}
	}
}

func (p *parser) explain() Statement {
	e := &Explain{Format: "text"}
	if p.Is("(") && !p.ParenSelect() {
		p.Expect("(")
		for {
			e.Options = append(e.Options, p.explainOption())
			if !p.Accept(",") {
				break
			}
		}
		p.Expect(")")
	} else {
		for _, w := range []string{"analyze", "analyse", "verbose"} {
			if t := p.Cur(); p.Accept(w) {
				e.Options = append(e.Options, Option{Name: strings.Replace(w, "analyse", "analyze", 1), Value: "true", Pos: t.Pos, ValuePos: t.Pos, NoValue: true})
			}
		}
	}
	timing, summary := -1, -1
	for _, o := range e.Options {
		switch o.Name {
		case "analyze":
			e.Analyze = explainBool(o)
		case "verbose":
			e.Verbose = explainBool(o)
		case "costs":
			e.Costs = explainBool(o)
		case "timing":
			timing = boolToInt(explainBool(o))
		case "summary":
			summary = boolToInt(explainBool(o))
		case "format":
			e.Format = strings.ToLower(o.Value)
			switch e.Format {
			case "text", "json", "xml", "yaml", "dot":
			default:
				lex.Fail(pgerr.InvalidParameterValue, o.Pos, "unrecognized value for EXPLAIN option \"format\": \"%s\"", o.Value)
			}
		case "duration":
			e.Duration = o.Value
		case "buffers", "wal", "settings", "generic_plan", "memory", "serialize", "trace", "logical", "physical", "distsql":
		default:
			lex.Fail(pgerr.SyntaxError, o.Pos, "unrecognized EXPLAIN option \"%s\"", o.Name)
		}
	}
	e.Timing, e.Summary = e.Analyze, e.Analyze
	if timing >= 0 {
		e.Timing = timing == 1
	}
	if summary >= 0 {
		e.Summary = summary == 1
	}
	if e.Sink = p.Accept("sink"); e.Sink || p.Accept("materialized", "view") {
		n := p.name()
		e.View = &n
		return e
	}
	if len(e.Options) == 0 && p.Accept("checkpoint") {
		e.Checkpoint = &ExplainedCheckpoint{IDPos: p.Cur().Pos, Newest: true}
		if !p.Cur().Is("for") && !p.Is(";") && p.Cur().K != lex.EOF {
			e.Checkpoint.ID, e.Checkpoint.Newest = p.natural("the id of a checkpoint").Number, false
		}
		if p.Accept("for") {
			n := p.name()
			e.Checkpoint.Job = &n
		}
		return e
	}
	if !p.StartsQuery() && !p.Any("insert", "update", "delete", "create", "declare", "execute", "refresh", "merge") {
		p.Syntax()
	}
	e.Target = p.inner()
	return e
}

// subscribe parses what follows SUBSCRIBE.
func (p *parser) subscribe() *Subscribe {
	s := &Subscribe{}
	p.Accept("to")
	if p.ParenSelect() {
		s.Query = p.fullQuery()
	} else {
		s.Name = p.name()
	}
	if p.Is("with") {
		s.Options = p.options()
	}
	for {
		switch {
		case s.AsOf == nil && p.Accept("as", "of"):
			s.AsOf = p.natural("an epoch")
		case s.UpTo == nil && p.Accept("up", "to"):
			s.UpTo = p.natural("an epoch")
		default:
			return s
		}
	}
}

// natural is a number that is not negative: an epoch, or what else the message calls it.
func (p *parser) natural(what string) *Epoch {
	e := &Epoch{Pos: p.Cur().Pos}
	n := p.bigint()
	if n < 0 {
		lex.Fail(pgerr.InvalidParameterValue, e.Pos, "%s must not be negative", what)
	}
	e.Number = uint64(n)
	return e
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (p *parser) explainOption() Option {
	t := p.Cur()
	o := Option{Pos: t.Pos, ValuePos: t.Pos, Value: "true", NoValue: true}
	if p.Accept("analyse") {
		o.Name = "analyze"
	} else if p.Accept("analyze") {
		o.Name = "analyze"
	} else {
		o.Name = p.Name("UCT").Val
	}
	if !p.Is(",") && !p.Is(")") {
		o.ValuePos, o.NoValue = p.Cur().Pos, false
		o.Value = p.settingValue()
	}
	return o
}

func explainBool(o Option) bool {
	switch strings.ToLower(o.Value) {
	case "true", "on", "1":
		return true
	case "false", "off", "0":
		return false
	}
	lex.Fail(pgerr.SyntaxError, o.Pos, "%s requires a Boolean value", o.Name)
	return false
}

func (p *parser) copy() Statement {
	c := &Copy{}
	binary := p.Cur()
	if p.Accept("binary") {
		c.Options = append(c.Options, CopyOption{Option: Option{Name: "format", Value: "binary", Pos: binary.Pos, ValuePos: binary.Pos}})
	}
	if p.Is("(") {
		p.I++
		if !p.StartsQuery() && !p.Any("insert", "update", "delete", "subscribe") {
			p.Syntax()
		}
		c.Query = p.inner()
		p.Expect(")")
		p.Expect("to")
	} else {
		c.Table = p.name()
		c.Columns = p.optIdentList()
		c.From = p.Accept("from")
		if !c.From {
			p.Expect("to")
		}
	}
	c.Program = p.Accept("program")
	switch t := p.Cur(); {
	case t.K == lex.Str:
		p.I++
		c.File = t.Val
	case !c.Program && (p.Accept("stdin") || p.Accept("stdout")):
		c.Stdio = true
	default:
		p.Syntax()
	}
	if d := p.Cur(); p.Accept("using", "delimiters") || p.Accept("delimiters") {
		c.Options = append(c.Options, CopyOption{Option: Option{Name: "delimiter", Value: p.stringConst().Val, Pos: d.Pos, ValuePos: d.Pos}})
	}
	p.Accept("with")
	if p.Accept("(") {
		for {
			c.Options = append(c.Options, p.copyOption())
			if !p.Accept(",") {
				break
			}
		}
		p.Expect(")")
	} else {
		c.Options = append(c.Options, p.oldCopyOptions()...)
	}
	if w := p.Cur(); p.Accept("where") {
		if !c.From {
			panic(pgerr.Newf(pgerr.SyntaxError, "WHERE clause not allowed with COPY TO").At(w.Pos))
		}
		c.Where = p.expr()
	}
	return c
}

func (p *parser) copyOption() CopyOption {
	t := p.ColLabel()
	o := CopyOption{Option: Option{Name: t.Val, Value: "true", Pos: t.Pos, ValuePos: t.Pos, NoValue: true}}
	v := p.Cur()
	switch {
	case p.Any(",", ")"):
		return o
	case p.Accept("*"):
		o.Star = true
	case p.Is("("):
		o.List = p.identList()
	default:
		o.Value = p.settingValue()
	}
	o.ValuePos, o.NoValue = v.Pos, false
	return o
}

// oldCopyOptions parses the options of PostgreSQL before 9.0, without parentheses.
func (p *parser) oldCopyOptions() []CopyOption {
	var out []CopyOption
	for {
		t := p.Cur()
		o := CopyOption{Option: Option{Value: "true", Pos: t.Pos, ValuePos: t.Pos}}
		str := func(name string) {
			p.Accept("as")
			o.Name, o.ValuePos, o.Value = name, p.Cur().Pos, p.stringConst().Val
		}
		switch {
		case p.Accept("binary"), p.Accept("csv"):
			o.Name, o.Value = "format", t.Val
		case p.Accept("freeze"), p.Accept("header"):
			o.Name = t.Val
		case p.Accept("delimiter"), p.Accept("null"), p.Accept("quote"), p.Accept("escape"), p.Accept("encoding"):
			str(t.Val)
		case p.Accept("force", "quote"):
			o.Name = "force_quote"
			if o.Star = p.Accept("*"); !o.Star {
				o.List = p.idents()
			}
		case p.Accept("force", "not", "null"):
			o.Name, o.List = "force_not_null", p.idents()
		case p.Accept("force", "null"):
			o.Name, o.List = "force_null", p.idents()
		default:
			return out
		}
		out = append(out, o)
	}
}

// maintenance parses the options and relations of VACUUM and ANALYZE.
func (p *parser) maintenance() (opts []Option, tables []Name) {
	if p.Accept("(") {
		for {
			opts = append(opts, p.explainOption())
			if !p.Accept(",") {
				break
			}
		}
		p.Expect(")")
	}
	for p.Any("full", "freeze", "verbose", "analyze", "analyse", "skip_locked") {
		t := p.Next()
		opts = append(opts, Option{Name: t.Val, Value: "true", Pos: t.Pos, ValuePos: t.Pos, NoValue: true})
	}
	if p.Is(";") || p.Cur().K == lex.EOF {
		return opts, nil
	}
	for {
		tables = append(tables, p.name())
		p.optIdentList()
		if !p.Accept(",") {
			return opts, tables
		}
	}
}

func (p *parser) lockMode() string {
	switch {
	case p.Accept("access"):
		if p.Accept("share") {
			return "access share"
		}
		p.Expect("exclusive")
		return "access exclusive"
	case p.Accept("row"):
		if p.Accept("share") {
			return "row share"
		}
		p.Expect("exclusive")
		return "row exclusive"
	case p.Accept("share"):
		switch {
		case p.Commit(1, "update", "exclusive"):
			return "share update exclusive"
		case p.Commit(1, "row", "exclusive"):
			return "share row exclusive"
		}
		return "share"
	}
	p.Expect("exclusive")
	return "exclusive"
}

func (p *parser) lock() Statement {
	p.Accept("table")
	l := &Lock{Mode: "access exclusive"}
	for {
		p.Accept("only")
		l.Tables = append(l.Tables, p.name())
		p.Accept("*")
		if !p.Accept(",") {
			break
		}
	}
	if p.Accept("in") {
		l.Mode = p.lockMode()
		p.Expect("mode")
	}
	l.NoWait = p.Accept("nowait")
	return l
}
