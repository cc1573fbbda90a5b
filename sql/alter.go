package sql

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
)

func (p *parser) alter() Statement {
	first := p.Next()
	t := p.Cur()
	if p.Accept("system") {
		a := &AlterObject{Kind: KindSystem}
		a.Actions = []AlterAction{p.alterSetting()}
		return a
	}
	if p.IsN("default", "privileges") {
		return p.alterDefaultPrivileges()
	}
	kind := p.objectKind()
	switch kind {
	case "":
		if _, ok := createHints[t.Val]; ok && t.K == lex.Ident {
			return p.unsupported(first.Pos, "ALTER "+strings.ToUpper(t.Val), "There are no such objects.")
		}
		p.Syntax()
	case KindFunction:
		return p.alterFunction(first.Pos)
	case KindExtension:
		return p.unsupported(first.Pos, "ALTER "+strings.ToUpper(string(kind)), "There are no such objects to alter.")
	case KindType:
		return p.alterType()
	case KindRole:
		return p.alterRole(t)
	case KindDatabase:
		if next := p.Peek(1); next.Is("set") && p.Peek(2).Is("tablespace") && p.Peek(3).IsName("UC") {
			return p.unsupported(first.Pos, "ALTER DATABASE SET TABLESPACE", "There are no tablespaces.")
		} else if next.Is("set") || next.Is("reset") {
			n := p.ident()
			return p.alterSettings(&AlterSettings{Kind: kind, Database: &n})
		}
	}
	a := &AlterObject{Kind: kind, IfExists: p.ifExists()}
	p.Accept("only")
	a.Name = p.name()
	p.Accept("*")
	if kind == KindSequence && !p.Any("rename", "owner") && !p.IsN("set", "schema") {
		s := &AlterSequence{Name: a.Name, IfExists: a.IfExists, Options: p.sequenceOptions()}
		if s.Options == nil {
			p.Syntax()
		}
		return s
	}
	if kind == KindMaterializedView && p.Accept("as") {
		v := &CreateMaterializedView{Alter: true, IfExists: a.IfExists, Name: a.Name, Query: p.fullQuery()}
		v.EmitOnWindowClose = v.Query.EmitOnWindowClose
		return v
	}
	for {
		if len(a.Actions) > 0 && (p.Is("rename") || p.IsN("set", "schema")) {
			p.Syntax()
		}
		act := p.alterAction()
		a.Actions = append(a.Actions, act)
		switch act.Kind {
		case AlterRename, AlterRenameColumn, AlterRenameConstraint, AlterSetSchema: // alone, as in PostgreSQL
			return a
		}
		if !p.Accept(",") {
			return a
		}
	}
}

// alterSetting parses SET name = value, RESET name and RESET ALL.
func (p *parser) alterSetting() AlterAction {
	act := AlterAction{Kind: AlterSetOptions, Pos: p.Cur().Pos}
	if p.Accept("reset") {
		act.Kind = AlterReset
		if !p.Accept("all") {
			act.Options = []Option{p.optionName()}
		}
		return act
	}
	p.Expect("set")
	o := p.optionName()
	if !p.Accept("to") {
		p.Expect("=")
	}
	o.NoValue, o.ValuePos = false, p.Cur().Pos
	if p.Accept("default") {
		act.Kind = AlterReset
		o.NoValue = true
	} else {
		o.Value = p.optionValue()
		for p.Accept(",") {
			o.Value += ", " + p.optionValue()
		}
	}
	act.Options = []Option{o}
	return act
}

func (p *parser) alterAction() AlterAction {
	t := p.Cur()
	act := AlterAction{Pos: t.Pos}
	switch {
	case p.Accept("rename", "to"):
		act.Kind, act.NewName = AlterRename, p.ident()
	case p.Accept("rename", "constraint"):
		act.Kind, act.Name = AlterRenameConstraint, p.ident()
		p.Expect("to")
		act.NewName = p.ident()
	case p.Accept("rename"):
		p.Accept("column")
		act.Kind, act.Name = AlterRenameColumn, p.ident()
		p.Expect("to")
		act.NewName = p.ident()
	case p.Accept("owner", "to"):
		act.Kind, act.NewName = AlterOwner, p.roleSpec().Ident
	case p.Accept("set", "schema"):
		act.Kind, act.NewName = AlterSetSchema, p.ident()
	case p.IsN("set", "("):
		p.I++
		act.Kind, act.Options = AlterSetOptions, p.optionList()
	case p.IsN("reset", "("):
		p.I++
		act.Kind, act.Options = AlterReset, p.optionList()
	case p.Accept("set", "logged"), p.Accept("set", "unlogged"), p.Accept("set", "without", "cluster"), p.Accept("set", "without", "oids"):
		act.Kind = AlterNothing
	case p.Accept("enable", "trigger"), p.Accept("disable", "trigger"):
		if !p.Accept("all") && !p.Accept("user") {
			p.Unsupported("a trigger", "There are none; ALL and USER are accepted.")
		}
		act.Kind = AlterNothing
	case p.Any("enable", "disable", "force") && p.Peek(1).Is("row"), p.IsN("no", "force", "row"):
		p.Unsupported("ROW LEVEL SECURITY", "Grant privileges on a view that shows the rows.")
	case p.Any("set", "reset"):
		return p.alterSetting()
	case p.Accept("refresh", "schema"):
		act.Kind = AlterRefreshSchema
	case p.Accept("add"):
		p.alterAdd(&act)
	case p.Accept("drop", "constraint"):
		act.Kind, act.IfExists, act.Name, act.Cascade = AlterDropConstraint, p.ifExists(), p.ident(), p.cascade()
	case p.Accept("drop"):
		p.Accept("column")
		act.Kind, act.IfExists, act.Name, act.Cascade = AlterDropColumn, p.ifExists(), p.ident(), p.cascade()
	case p.Accept("alter"):
		p.Accept("column")
		act.Name = p.ident()
		p.alterColumn(&act)
	case p.Accept("validate", "constraint"):
		act.Kind, act.Name = AlterValidateConstraint, p.ident()
	case p.Accept("replica", "identity"), p.Accept("cluster", "on"):
		act.Kind = AlterNothing
		p.Next()
		if p.Accept("index") {
			p.ident()
		}
	case p.Any("enable", "disable", "inherit", "no", "attach", "detach", "force"):
		p.Unsupported("ALTER .. "+strings.ToUpper(t.Val), "This has no meaning here.")
	default:
		p.Syntax()
	}
	return act
}

func (p *parser) alterAdd(act *AlterAction) {
	t := p.Cur()
	if p.Any("constraint", "primary", "unique", "check", "foreign", "exclude") && (t.Cat == 'R' || t.Is("exclude") && !p.Peek(1).IsName("UT")) {
		c := p.tableConstraint()
		act.Kind, act.Constraint = AlterAddConstraint, &c
		return
	}
	p.Accept("column")
	act.Kind, act.IfNotExists = AlterAddColumn, p.ifNotExists()
	c := p.columnDef()
	act.Column = &c
}

func (p *parser) alterColumn(act *AlterAction) {
	switch {
	case p.Accept("set", "default"):
		act.Kind, act.Default = AlterSetDefault, p.expr()
	case p.Accept("drop", "default"):
		act.Kind = AlterDropDefault
	case p.Accept("set", "not", "null"):
		act.Kind = AlterSetNotNull
	case p.Accept("drop", "not", "null"):
		act.Kind = AlterDropNotNull
	case p.Accept("set", "data", "type"), p.Accept("type"):
		act.Kind, act.Type = AlterColumnType, p.typeName()
		if p.Accept("collate") {
			p.name()
		}
		if p.Accept("using") {
			act.Using = p.expr()
		}
	case p.IsN("add", "generated"):
		p.I += 2
		act.Kind, act.Identity = AlterAddIdentity, p.identityKind()
		p.Expect("as", "identity")
		act.Sequence = p.identityOptions()
	case p.Accept("drop", "identity"):
		act.Kind, act.IfExists = AlterDropIdentity, p.ifExists()
	case p.Accept("drop", "expression"):
		act.Kind, act.IfExists = AlterDropExpression, p.ifExists()
	case p.IsN("set", "generated"), p.Is("restart"), p.Is("set") && p.sequenceWord(1):
		act.Kind = AlterSetIdentity
		p.setIdentity(act)
	case p.Accept("set", "storage"), p.Accept("set", "statistics"), p.Accept("set", "compression"):
		act.Kind = AlterNothing
		p.Accept("-")
		p.Next()
	case p.IsN("set", "("), p.IsN("reset", "("):
		p.I++
		act.Kind = AlterNothing
		p.optionList()
	case p.Any("set", "reset", "add", "drop"):
		p.Unsupported("this change of a column", "Defaults, NOT NULL and the type can be changed.")
	default:
		p.Syntax()
	}
}

// identityKind parses ALWAYS or BY DEFAULT.
func (p *parser) identityKind() string {
	if p.Accept("always") {
		return "always"
	}
	p.Expect("by", "default")
	return "by default"
}

// sequenceWord reports whether the n-th token from here begins an option of a sequence.
func (p *parser) sequenceWord(n int) bool {
	t := p.Peek(n)
	for _, w := range [...]string{"increment", "minvalue", "maxvalue", "no", "start", "cache", "cycle", "restart", "sequence"} {
		if t.Is(w) {
			return true
		}
	}
	return false
}

// setIdentity parses SET GENERATED .., SET option and RESTART [WITH n], in any number.
func (p *parser) setIdentity(act *AlterAction) {
	for {
		switch {
		case p.Accept("set", "generated"):
			if act.Identity != "" {
				lex.Fail(pgerr.SyntaxError, p.Cur().Pos, "conflicting or redundant options")
			}
			act.Identity = p.identityKind()
		case p.Is("restart"), p.Is("set") && p.sequenceWord(1):
			p.Accept("set")
			o := SequenceOption{Pos: p.Cur().Pos}
			if !p.sequenceOption(&o) {
				p.Syntax()
			}
			act.Sequence = append(act.Sequence, o)
		default:
			return
		}
	}
}
