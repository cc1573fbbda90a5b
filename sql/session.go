package sql

import (
	"math"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
)

// sessionStatement parses the statements of transactions, settings, prepared statements and cursors; nil when t begins none of them.
func (p *parser) sessionStatement(t *lex.Token) Statement {
	switch t.Val {
	case "begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release":
		p.I++
		return p.transaction(t)
	case "set":
		p.I++
		return p.set()
	case "reset":
		p.I++
		if p.Accept("all") {
			return &Reset{All: true}
		}
		return &Reset{Name: p.settingName()}
	case "show", "describe":
		p.I++
		return p.show(t)
	case "discard":
		p.I++
		if !p.Any("all", "plans", "sequences", "temp", "temporary") {
			p.Syntax()
		}
		return &Discard{What: strings.TrimSuffix(p.Next().Val, "orary")}
	case "prepare":
		p.I++
		return p.prepare(t)
	case "execute":
		p.I++
		return p.execute()
	case "deallocate":
		p.I++
		p.noise("prepare")
		if p.Accept("all") {
			return &Deallocate{All: true}
		}
		return &Deallocate{Name: p.ColID().Val}
	case "declare":
		p.I++
		return p.declare()
	case "fetch", "move":
		p.I++
		return p.fetch(t.Val == "move")
	case "close":
		p.I++
		if p.Accept("all") {
			return &Close{All: true}
		}
		return &Close{Name: p.ColID().Val}
	case "listen":
		p.I++
		return &Listen{Channel: p.ColID().Val}
	case "unlisten":
		p.I++
		if p.Accept("*") {
			return &Unlisten{All: true}
		}
		return &Unlisten{Channel: p.ColID().Val}
	case "notify":
		p.I++
		n := &Notify{Channel: p.ColID().Val}
		if p.Accept(",") {
			n.Payload = p.stringConst().Val
		}
		return n
	}
	return nil
}

// noise consumes a word that may stand before a name, and may be that name itself.
func (p *parser) noise(word string) {
	if n := p.Peek(1); p.Is(word) && (n.IsName("UC") || n.Is("all")) {
		p.I++
	}
}

func (p *parser) transaction(t *lex.Token) Statement {
	work := func() {
		if !p.Accept("work") {
			p.Accept("transaction")
		}
	}
	switch t.Val {
	case "begin":
		work()
		return &Begin{Modes: p.txModes(false)}
	case "start":
		p.Expect("transaction")
		return &Begin{IsStart: true, Modes: p.txModes(false)}
	case "savepoint":
		return &Savepoint{Name: p.ColID().Val}
	case "release":
		p.noise("savepoint")
		return &Release{Name: p.ColID().Val}
	}
	if p.Is("prepared") && (t.Val == "commit" || t.Val == "rollback") {
		return p.unsupported(t.Pos, strings.ToUpper(t.Val)+" PREPARED", "Two-phase commit is not available.")
	}
	work()
	if t.Val == "rollback" && p.Accept("to") {
		p.noise("savepoint")
		return &RollbackTo{Name: p.ColID().Val}
	}
	chain := false
	if p.Accept("and") {
		chain = !p.Accept("no")
		p.Expect("chain")
	}
	if t.Val == "commit" || t.Val == "end" {
		return &Commit{Chain: chain}
	}
	return &Rollback{Chain: chain}
}

// txModes parses transaction modes, separated by commas or not; required asks for at least one.
func (p *parser) txModes(required bool) TxModes {
	var m TxModes
	yes, no := true, false
	for n := 0; ; n++ {
		switch {
		case p.Commit(1, "isolation", "level"):
			switch {
			case p.Accept("read"):
				if p.Accept("uncommitted") {
					m.Isolation = "read uncommitted"
				} else {
					p.Expect("committed")
					m.Isolation = "read committed"
				}
			case p.Commit(1, "repeatable", "read"):
				m.Isolation = "repeatable read"
			default:
				p.Expect("serializable")
				m.Isolation = "serializable"
			}
		case p.Accept("read"):
			if p.Accept("only") {
				m.ReadOnly = &yes
			} else {
				p.Expect("write")
				m.ReadOnly = &no
			}
		case p.Accept("deferrable"):
			m.Deferrable = &yes
		case p.Commit(1, "not", "deferrable"):
			m.Deferrable = &no
		default:
			if required && n == 0 {
				p.Syntax()
			}
			return m
		}
		if p.Accept(",") {
			required, n = true, -1
		}
	}
}

// settingName parses a dotted setting name, or one of the multi-word ones.
func (p *parser) settingName() string {
	switch {
	case p.Accept("time", "zone"):
		return "timezone"
	case p.Commit(2, "transaction", "isolation", "level"):
		return "transaction_isolation"
	case p.Accept("session", "authorization"):
		return "session_authorization"
	}
	return p.dottedName()
}

// dottedName is the name of a setting.
func (p *parser) dottedName() string {
	n := p.ColID().Val
	for p.Accept(".") {
		n += "." + p.ColLabel().Val
		for p.Is("-") && p.Peek(1).IsName("UCTR") { // min-pause
			p.I++
			n += "-" + p.ColLabel().Val
		}
	}
	return n
}

func (p *parser) set() Statement {
	local := p.Accept("local")
	session := !local && p.Is("session") && !p.Peek(1).Is("authorization") && !p.Peek(1).Is("=") && !p.Peek(1).Is("to") && p.Accept("session")
	s := &Set{Local: local, ValuePos: p.Cur().Pos}
	value := func(name string) Statement {
		s.Name, s.ValuePos = name, p.Cur().Pos
		if p.Accept("default") {
			s.Default = true
		} else {
			s.Values = []string{p.settingValue()}
		}
		return s
	}
	switch {
	case p.Accept("transaction", "snapshot"):
		return &SetTransaction{Snapshot: p.stringConst().Val}
	case p.Accept("transaction"):
		return &SetTransaction{Modes: p.txModes(true)}
	case session && p.Accept("characteristics", "as", "transaction"):
		return &SetTransaction{Session: true, Modes: p.txModes(true)}
	case p.Accept("constraints"):
		c := &SetConstraints{}
		if !p.Accept("all") {
			c.Names = p.names()
		}
		if !p.Accept("immediate") {
			p.Expect("deferred")
			c.Deferred = true
		}
		return c
	case p.Accept("time", "zone"):
		return p.setTimeZone(s)
	case p.Accept("names"):
		s.Name, s.Default = "client_encoding", true
		if p.Cur().K == lex.Str || p.Cur().K == lex.Ident && !p.Is("default") {
			s.Values, s.Default = []string{p.Next().Val}, false
		} else {
			p.Accept("default")
		}
		return s
	case p.Is("schema") && p.Peek(1).K == lex.Str:
		p.I++
		return value("search_path")
	case p.Accept("role"):
		if !p.Accept("to") {
			p.Accept("=")
		}
		return value("role")
	case p.Accept("session", "authorization"), session && p.Accept("authorization"):
		return value("session_authorization")
	}
	s.Name = p.dottedName()
	if p.IsN("from", "current") {
		p.Unsupported("SET .. FROM CURRENT", "Give the value.")
	}
	if !p.Accept("to") {
		p.Expect("=")
	}
	s.ValuePos = p.Cur().Pos
	if p.Accept("default") {
		s.Default = true
		return s
	}
	for {
		s.Values = append(s.Values, p.settingValue())
		if !p.Accept(",") {
			return s
		}
	}
}

// settingValue parses one var_value: a string, a number, or a word.
func (p *parser) settingValue() string {
	t := p.Cur()
	switch {
	case t.K == lex.Str:
		return p.Next().Val
	case t.K == lex.Int, t.K == lex.Num:
		p.I++
		return p.Src[t.Pos:t.End]
	case t.Is("-"), t.Is("+"):
		return p.optionValue()
	case t.K == lex.Ident && (t.Val == "true" || t.Val == "false" || t.Val == "on"):
		return p.Next().Val
	case t.IsName("UCT"):
		return p.Next().Val
	}
	p.Syntax()
	return ""
}

func (p *parser) setTimeZone(s *Set) Statement {
	s.Name, s.ValuePos = "timezone", p.Cur().Pos
	switch {
	case p.Accept("default"), p.Accept("local"):
		s.Default = true
	case p.Is("interval"):
		start := p.Next().Pos
		if p.Accept("(") {
			p.Next()
			p.Expect(")")
		}
		p.stringConst()
		for p.Any("hour", "minute", "to") {
			p.I++
		}
		s.Values = []string{p.Slice(start)}
	default:
		s.Values = []string{p.settingValue()}
	}
	return s
}

// showPlurals are the object lists of SHOW; PostgreSQL has no settings of these names.
var showPlurals = map[string]bool{
	"jobs": true, "tables": true, "sources": true, "views": true, "sinks": true, "schemas": true, "databases": true, "indexes": true,
	"functions": true, "users": true, "roles": true, "settings": true,
}

func (p *parser) show(first *lex.Token) Statement {
	if first.Val == "describe" {
		return &Show{Kind: ShowColumns, Target: p.name()}
	}
	t := p.Cur()
	switch {
	case p.Accept("all"):
		s := &Show{Kind: ShowAll}
		if p.Accept("like") {
			s.Like = p.stringConst().Val
		}
		return s
	case p.Accept("create"):
		s := &Show{Kind: ShowCreate, Object: p.objectKind()}
		if s.Object == "" {
			p.Syntax()
		}
		s.Target = p.name()
		return s
	case p.Accept("columns", "from"):
		return &Show{Kind: ShowColumns, Target: p.name()}
	case p.Accept("materialized", "views"):
		return p.showObjects("materialized views")
	case t.K == lex.Ident && showPlurals[t.Val]:
		p.I++
		return p.showObjects(t.Val)
	}
	return &Show{Kind: ShowSetting, Name: p.settingName()}
}

func (p *parser) showObjects(what string) Statement {
	s := &Show{Kind: ShowObjects, Objects: what}
	if p.Accept("from") || p.Accept("in") {
		s.From = p.ColID().Val
	}
	if p.Accept("like") {
		s.Like = p.stringConst().Val
	}
	return s
}

func (p *parser) prepare(first *lex.Token) Statement {
	if p.Is("transaction") && p.Peek(1).K == lex.Str {
		return p.unsupported(first.Pos, "PREPARE TRANSACTION", "Two-phase commit is not available.")
	}
	s := &Prepare{Name: p.ColID().Val}
	if p.Accept("(") {
		for {
			s.Types = append(s.Types, *p.typeName())
			if !p.Accept(",") {
				break
			}
		}
		p.Expect(")")
	}
	p.Expect("as")
	if !p.StartsQuery() && !p.Any("insert", "update", "delete") {
		p.Syntax()
	}
	s.Target = p.inner()
	return s
}

// inner parses a statement inside another one.
func (p *parser) inner() Statement {
	start := p.I
	st := p.statement()
	p.finish(st, start)
	return st
}

func (p *parser) execute() Statement {
	s := &Execute{Name: p.ColID().Val}
	if p.Accept("(") {
		for {
			s.Args = append(s.Args, p.expr())
			if !p.Accept(",") {
				break
			}
		}
		p.Expect(")")
	}
	return s
}

func (p *parser) declare() Statement {
	s := &Declare{Name: p.ColID().Val}
	for {
		switch {
		case p.Accept("binary"):
			s.Binary = true
		case p.Accept("insensitive"):
			s.Insensitive = true
		case p.Accept("asensitive"):
			s.Asensitive = true
		case p.Commit(1, "no", "scroll"):
			s.NoScroll = true
		case p.Accept("scroll"):
			s.Scroll = true
		default:
			p.Expect("cursor")
			if p.Accept("with") {
				p.Expect("hold")
				s.Hold = true
			} else if p.Accept("without") {
				p.Expect("hold")
			}
			p.Expect("for")
			if start := p.I; p.Accept("subscribe") {
				s.Subscribe = p.subscribe()
				p.finish(s.Subscribe, start)
				return s
			}
			s.Query = p.fullQuery()
			return s
		}
	}
}

func (p *parser) fetch(move bool) Statement {
	f := &Fetch{Move: move, Count: 1}
	counted := func() {
		if p.Accept("all") {
			f.All = true
		} else if t := p.Cur(); t.K == lex.Int || t.Is("-") || t.Is("+") {
			f.Count = p.signedInt()
		}
	}
	// A direction word may also be the cursor's name: FETCH next.
	alone := p.Cur().K != lex.Int && (p.Peek(1).K == lex.EOF || p.Peek(1).Is(";"))
	switch t := p.Cur(); {
	case alone:
	case p.Accept("next"):
	case p.Accept("prior"):
		f.Direction = FetchBackward
	case p.Accept("first"):
		f.Direction = FetchAbsolute
	case p.Accept("last"):
		f.Direction, f.Count = FetchAbsolute, -1
	case p.Accept("absolute"):
		f.Direction, f.Count = FetchAbsolute, p.signedInt()
	case p.Accept("relative"):
		f.Direction, f.Count = FetchRelative, p.signedInt()
	case p.Accept("forward"):
		counted()
	case p.Accept("backward"):
		f.Direction = FetchBackward
		counted()
	case t.K == lex.Int || t.Is("-") || t.Is("+") || t.Is("all"):
		counted()
	}
	if !p.Accept("from") {
		p.Accept("in")
	}
	f.Name = p.ColID().Val
	if p.Is("with") {
		f.Options = p.options()
	}
	return f
}

func (p *parser) signedInt() int64 {
	neg := p.Accept("-")
	if !neg {
		p.Accept("+")
	}
	t := p.Cur()
	if t.K != lex.Int {
		p.Syntax()
	}
	n, err := strconv.ParseInt(t.Val, 10, 64)
	if err != nil || n > math.MaxInt32 {
		lex.Fail(pgerr.SyntaxError, t.Pos, "syntax error at or near \"%s\"", t.Val)
	}
	p.I++
	if neg {
		return -n
	}
	return n
}
