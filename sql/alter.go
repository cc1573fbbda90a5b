package sql

import (
	"strings"

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
	kind := p.objectKind()
	switch kind {
	case "":
		if _, ok := createHints[t.Val]; ok && t.K == lex.Ident {
			return p.unsupported(first.Pos, "ALTER "+strings.ToUpper(t.Val), "There are no such objects.")
		}
		p.Syntax()
	case KindFunction, KindSequence, KindExtension:
		return p.unsupported(first.Pos, "ALTER "+strings.ToUpper(string(kind)), "There are no such objects to alter.")
	case KindType:
		return p.alterType()
	case KindRole:
		r := &AlterRole{Name: p.ident(), User: t.Val == "user"}
		p.Accept("with")
		r.Options = p.roleOptions()
		if p.Any("set", "reset", "rename", "in") {
			p.Unsupported("ALTER ROLE .. "+strings.ToUpper(p.Cur().Val), "Give role options such as PASSWORD.")
		}
		return r
	}
	a := &AlterObject{Kind: kind, IfExists: p.ifExists()}
	p.Accept("only")
	a.Name = p.name()
	p.Accept("*")
	for {
		a.Actions = append(a.Actions, p.alterAction())
		if !p.Accept(",") {
			return a
		}
	}
}

// alterSetting parses SET name = value and RESET name.
func (p *parser) alterSetting() AlterAction {
	act := AlterAction{Kind: AlterSetOptions, Pos: p.Cur().Pos}
	if p.Accept("reset") {
		act.Kind = AlterReset
		act.Options = []Option{p.optionName()}
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
		act.Kind, act.NewName = AlterOwner, p.ident()
	case p.Accept("set", "schema"):
		act.Kind, act.NewName = AlterSetSchema, p.ident()
	case p.IsN("set", "("):
		p.I++
		act.Kind, act.Options = AlterSetOptions, p.optionList()
	case p.IsN("reset", "("):
		p.I++
		act.Kind, act.Options = AlterReset, p.optionList()
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
	case p.Any("enable", "disable", "inherit", "no", "attach", "detach", "validate", "cluster", "replica", "force"):
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
	case p.Any("set", "reset", "add", "drop"):
		p.Unsupported("this change of a column", "Defaults, NOT NULL and the type can be changed.")
	default:
		p.Syntax()
	}
}
