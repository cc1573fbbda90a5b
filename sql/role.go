package sql

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/internal/lex"
)

// RoleSpec names a role, or stands for one: CURRENT_USER, CURRENT_ROLE, SESSION_USER (Special, in lower case), PUBLIC (Special "public").
// The Ident of a special one is its upper-case keyword, which no folded name is.
type RoleSpec struct {
	Ident
	Special string
}

// RoleOption is one option of CREATE or ALTER ROLE: LOGIN, NOLOGIN, SUPERUSER, PASSWORD, ..
type RoleOption struct {
	Name  string // upper case
	Value string
	Null  bool       // PASSWORD NULL
	Roles []RoleSpec // IN ROLE, ROLE, ADMIN
	Pos   int
	// secret is the place of a password in the text.
	secret [2]int
}

// CreateRole is CREATE ROLE, USER (which may log in) or GROUP.
type CreateRole struct {
	Base
	Name    Ident
	User    bool
	Options []RoleOption
}

// AlterRole is ALTER ROLE or USER: options, RENAME TO, or ALTER GROUP .. ADD and DROP USER (options ADD and DROP).
type AlterRole struct {
	Base
	Role    RoleSpec
	Options []RoleOption
	Rename  *Ident
}

// AlterSettings is ALTER ROLE or DATABASE .. SET and RESET: what settings new sessions begin with.
type AlterSettings struct {
	Base
	Kind        ObjectKind  // KindRole or KindDatabase, as the statement says
	Role        *RoleSpec   // nil: all roles
	Database    *Ident      // nil: all databases
	Setting     AlterAction // AlterSetOptions or AlterReset; without options it is RESET ALL
	FromCurrent bool
}

// PrivilegeSpec is a privilege in GRANT or REVOKE, or a role; Columns restrict a privilege.
type PrivilegeSpec struct {
	Name    string // as folded; "all" for ALL PRIVILEGES
	Columns []Ident
	Pos     int
}

// FunctionName is a function with the types of its arguments, nil when they are not given.
type FunctionName struct {
	Name
	Args    []*TypeName
	HasArgs bool
}

// Grant is GRANT, or REVOKE when Revoke is set. With Kind "" it is about membership in the roles named in Privileges.
type Grant struct {
	Base
	Revoke      bool
	OptionOnly  bool // REVOKE GRANT OPTION FOR, ADMIN OPTION FOR
	Privileges  []PrivilegeSpec
	Kind        ObjectKind // table, sequence, schema, database, function, type, "language", "tablespace", "foreign data wrapper", "foreign server"
	AllInSchema bool       // Objects are schemas
	Objects     []Name
	Functions   []FunctionName // instead of Objects
	Grantees    []RoleSpec
	GrantOption bool
	GrantedBy   *RoleSpec
	Cascade     bool
}

// AlterDefaultPrivileges is ALTER DEFAULT PRIVILEGES; Grant.Kind is table, sequence, function, type or schema.
type AlterDefaultPrivileges struct {
	Base
	Roles   []RoleSpec
	Schemas []Ident
	Grant   Grant
}

// ReassignOwned is REASSIGN OWNED BY roles TO role.
type ReassignOwned struct {
	Base
	Roles []RoleSpec
	To    RoleSpec
}

// DropOwned is DROP OWNED BY roles.
type DropOwned struct {
	Base
	Roles   []RoleSpec
	Cascade bool
}

// hiddenPassword stands in the text of statements where a password was.
const hiddenPassword = "'********'"

// sourceText is a statement as the user wrote it, without the passwords in it: the text goes to logs and to what other sessions may see.
func (p *parser) sourceText(st Statement, b *Base) string {
	var opts []RoleOption
	switch st := st.(type) {
	case *CreateRole:
		opts = st.Options
	case *AlterRole:
		opts = st.Options
	}
	var out strings.Builder
	at := b.Start
	for _, o := range opts {
		if o.secret[1] > 0 {
			out.WriteString(p.Src[at:o.secret[0]])
			out.WriteString(hiddenPassword)
			at = o.secret[1]
		}
	}
	if at == b.Start {
		return p.Src[b.Start:b.End]
	}
	out.WriteString(p.Src[at:b.End])
	return out.String()
}

// roleSpec parses a name of a role or what stands for one.
func (p *parser) roleSpec() RoleSpec {
	t := p.Cur()
	if t.K == lex.Ident {
		switch t.Val {
		case "current_user", "current_role", "session_user":
			p.I++
			return RoleSpec{Ident{strings.ToUpper(t.Val), t.Pos}, t.Val}
		}
	}
	r := RoleSpec{Ident: p.ident()}
	switch r.Name {
	case "public":
		r.Special = "public"
		r.Name = "PUBLIC"
	case "none":
		panic(pgerr.Newf(pgerr.ReservedName, "role name \"none\" is reserved").At(t.Pos))
	}
	return r
}

func (p *parser) roleSpecs() []RoleSpec {
	out := []RoleSpec{p.roleSpec()}
	for p.Accept(",") {
		out = append(out, p.roleSpec())
	}
	return out
}

// roleName parses the name of a role that CREATE and RENAME give.
func (p *parser) roleName() Ident {
	r := p.roleSpec()
	switch r.Special {
	case "":
		return r.Ident
	case "public":
		panic(pgerr.Newf(pgerr.ReservedName, "role name \"public\" is reserved").At(r.Pos))
	}
	panic(pgerr.Newf(pgerr.ReservedName, "%s cannot be used as a role name here", r.Name).At(r.Pos))
}

func (p *parser) roleNames() []Name {
	var out []Name
	for {
		r := p.roleSpec()
		if r.Special != "" {
			panic(pgerr.Newf(pgerr.InvalidParameterValue, "cannot use special role specifier in DROP ROLE"))
		}
		out = append(out, Name{Name: r.Name, Pos: r.Pos})
		if !p.Accept(",") {
			return out
		}
	}
}

func (p *parser) createRole() Statement {
	t := p.Next()
	r := &CreateRole{User: t.Val == "user", Name: p.roleName()}
	p.Accept("with")
	r.Options = p.roleOptions(true)
	return r
}

// optionFamily is what a role may be told only once.
func optionFamily(name string) string {
	switch name {
	case "NOSUPERUSER", "NOCREATEDB", "NOCREATEROLE", "NOINHERIT", "NOLOGIN", "NOREPLICATION", "NOBYPASSRLS":
		return name[2:]
	}
	return name
}

func (p *parser) roleOptions(create bool) []RoleOption {
	var out []RoleOption
	seen := map[string]bool{}
	for {
		t := p.Cur()
		o := RoleOption{Name: strings.ToUpper(t.Val), Pos: t.Pos}
		switch {
		case p.Accept("encrypted", "password"), p.Accept("password"):
			o.Name = "PASSWORD"
			if p.Accept("null") {
				o.Null = true
			} else {
				s := p.stringConst()
				o.Value, o.secret = s.Val, [2]int{s.Pos, s.End}
			}
		case p.IsN("unencrypted", "password"):
			panic(pgerr.Newf(pgerr.FeatureNotSupported, "UNENCRYPTED PASSWORD is no longer supported").At(t.Pos).
				WithHint("Remove UNENCRYPTED to store the password in encrypted form instead."))
		case p.Accept("valid", "until"):
			o.Name, o.Value = "VALID UNTIL", p.stringConst().Val
		case p.Accept("connection", "limit"):
			o.Name, o.Value = "CONNECTION LIMIT", p.optionValue()
		case create && p.Is("in") && (p.Peek(1).Is("role") || p.Peek(1).Is("group")):
			p.I += 2
			o.Name, o.Roles = "IN ROLE", p.roleSpecs()
		case create && p.Accept("sysid"):
			p.Next()
			continue
		case create && p.Accept("admin"):
			o.Name, o.Roles = "ADMIN", p.roleSpecs()
		case p.Any("role", "user") && (create || p.Is("user")):
			p.I++
			o.Name, o.Roles = "ROLE", p.roleSpecs()
		case p.Any("superuser", "nosuperuser", "createdb", "nocreatedb", "createrole", "nocreaterole", "inherit", "noinherit",
			"login", "nologin", "replication", "noreplication", "bypassrls", "nobypassrls"):
			p.I++
		case t.K == lex.Ident && t.Cat == 0:
			lex.Fail(pgerr.SyntaxError, t.Pos, "unrecognized role option \"%s\"", t.Val)
		default:
			return out
		}
		if f := optionFamily(o.Name); seen[f] {
			lex.Fail(pgerr.SyntaxError, t.Pos, "conflicting or redundant options")
		} else {
			seen[f] = true
		}
		out = append(out, o)
	}
}

// alterRole parses what follows ALTER ROLE, USER or GROUP (word).
func (p *parser) alterRole(word *lex.Token) Statement {
	settings := &AlterSettings{Kind: KindRole}
	r := &AlterRole{}
	if !p.Accept("all") {
		r.Role = p.roleSpec()
		if r.Role.Special == "public" {
			panic(pgerr.Newf(pgerr.ReservedName, "role name \"public\" is reserved").At(r.Role.Pos))
		}
		settings.Role = &r.Role
	}
	switch {
	case settings.Role == nil:
	case p.Accept("rename", "to"):
		n := p.roleName()
		r.Rename = &n
		return r
	case word.Is("group"):
		o := RoleOption{Name: "ADD", Pos: p.Cur().Pos}
		if !p.Accept("add", "user") {
			p.Expect("drop", "user")
			o.Name = "DROP"
		}
		o.Roles = p.roleSpecs()
		r.Options = []RoleOption{o}
		return r
	}
	if p.Accept("in", "database") {
		n := p.ident()
		settings.Database = &n
	}
	if p.Any("set", "reset") {
		return p.alterSettings(settings)
	}
	if settings.Role == nil || settings.Database != nil {
		p.Syntax()
	}
	p.Accept("with")
	r.Options = p.roleOptions(false)
	return r
}

// alterSettings parses SET and RESET of ALTER ROLE and DATABASE into st.
func (p *parser) alterSettings(st *AlterSettings) Statement {
	if p.Is("set") && p.Peek(2).Is("from") {
		p.I++
		o := p.optionName()
		p.Expect("from", "current")
		st.Setting = AlterAction{Kind: AlterSetOptions, Options: []Option{o}, Pos: o.Pos}
		st.FromCurrent = true
		return st
	}
	if p.IsN("set", "time", "zone") || p.IsN("set", "role") {
		pos := p.Next().Pos
		s := &Set{}
		if p.Accept("role") {
			if !p.Accept("to") {
				p.Accept("=")
			}
			s.Name, s.Values = "role", []string{p.settingValue()}
		} else {
			p.I += 2
			p.setTimeZone(s)
		}
		st.Setting = AlterAction{Kind: AlterSetOptions, Options: []Option{{Name: s.Name, Value: strings.Join(s.Values, ", "), Pos: pos}}, Pos: pos}
		if s.Default {
			st.Setting.Kind = AlterReset
		}
		return st
	}
	st.Setting = p.alterSetting()
	return st
}

// grantKinds are the words after ON, with what they name.
var grantKinds = map[string]ObjectKind{
	"table": KindTable, "view": KindTable, "source": KindTable, "sequence": KindSequence, "schema": KindSchema, "database": KindDatabase,
	"function": KindFunction, "procedure": KindFunction, "routine": KindFunction, "type": KindType, "domain": KindType, "language": "language",
	"tablespace": "tablespace",
}

var grantPlurals = map[string]ObjectKind{
	"tables": KindTable, "sequences": KindSequence, "functions": KindFunction, "procedures": KindFunction, "routines": KindFunction,
	"types": KindType, "schemas": KindSchema,
}

func (p *parser) grant(revoke bool) Statement {
	g := &Grant{Revoke: revoke}
	p.privileges(g)
	if p.Accept("on") {
		p.grantObjects(g)
	}
	p.grantees(g)
	return g
}

// privileges parses what is granted, with the options before it.
func (p *parser) privileges(g *Grant) {
	if g.Revoke {
		g.OptionOnly = p.Accept("grant", "option", "for") || p.Accept("admin", "option", "for")
	}
	for {
		t := p.Cur()
		if !t.IsName("UCTR") {
			p.Syntax()
		}
		p.I++
		s := PrivilegeSpec{Name: t.Val, Pos: t.Pos}
		if t.Val == "all" && t.K == lex.Ident {
			p.Accept("privileges")
		}
		s.Columns = p.optIdentList()
		g.Privileges = append(g.Privileges, s)
		if !p.Accept(",") {
			return
		}
	}
}

func (p *parser) grantObjects(g *Grant) {
	g.Kind = KindTable
	if p.Accept("all") {
		k, ok := grantPlurals[p.Cur().Val]
		if !ok || k == KindType || k == KindSchema {
			p.Syntax()
		}
		p.I++
		p.Expect("in", "schema")
		g.Kind, g.AllInSchema = k, true
		g.Objects = p.names()
		return
	}
	t := p.Cur()
	switch {
	case p.Accept("materialized", "view"):
	case p.Accept("foreign", "data", "wrapper"):
		g.Kind = "foreign data wrapper"
	case p.Accept("foreign", "server"):
		g.Kind = "foreign server"
	case p.IsN("large", "object"), p.Is("parameter") && p.Peek(1).IsName("UC"):
		p.Unsupported("GRANT ON "+strings.ToUpper(t.Val), "There are no privileges on such objects.")
	case t.K == lex.Ident && grantKinds[t.Val] != "" && p.Peek(1).IsName("UCTR") && !p.Peek(1).Is("to") && !p.Peek(1).Is("from"):
		p.I++
		g.Kind = grantKinds[t.Val]
	}
	if g.Kind == KindFunction {
		for {
			g.Functions = append(g.Functions, p.functionName())
			if !p.Accept(",") {
				return
			}
		}
	}
	g.Objects = p.names()
}

func (p *parser) functionName() FunctionName {
	f := FunctionName{Name: p.name()}
	if !p.Accept("(") {
		return f
	}
	f.HasArgs = true
	if p.Accept(")") {
		return f
	}
	for {
		for p.Any("in", "out", "inout", "variadic") {
			p.I++
		}
		if p.Cur().IsName("UC") && p.Peek(1).IsName("UCTR") && !p.Peek(1).Is("precision") && !p.Peek(1).Is("varying") && !p.Peek(1).Is("with") && !p.Peek(1).Is("without") {
			p.I++ // the argument's name
		}
		f.Args = append(f.Args, p.typeName())
		if !p.Accept(",") {
			break
		}
	}
	p.Expect(")")
	return f
}

// grantees parses TO or FROM and what follows.
func (p *parser) grantees(g *Grant) {
	if g.Revoke {
		p.Expect("from")
	} else {
		p.Expect("to")
	}
	for {
		p.Accept("group")
		g.Grantees = append(g.Grantees, p.roleSpec())
		if !p.Accept(",") {
			break
		}
	}
	if !g.Revoke {
		g.GrantOption = p.Accept("with", "grant", "option") || p.Accept("with", "admin", "option")
	}
	if p.Accept("granted", "by") {
		r := p.roleSpec()
		g.GrantedBy = &r
	}
	if g.Revoke {
		g.Cascade = p.cascade()
	}
}

func (p *parser) alterDefaultPrivileges() Statement {
	p.I += 2
	a := &AlterDefaultPrivileges{}
	for {
		switch {
		case p.IsN("for", "role"), p.IsN("for", "user"):
			p.I += 2
			a.Roles = append(a.Roles, p.roleSpecs()...)
			continue
		case p.Accept("in", "schema"):
			a.Schemas = append(a.Schemas, p.idents()...)
			continue
		}
		break
	}
	g := &a.Grant
	switch {
	case p.Accept("revoke"):
		g.Revoke = true
	default:
		p.Expect("grant")
	}
	p.privileges(g)
	p.Expect("on")
	k, ok := grantPlurals[p.Cur().Val]
	if !ok {
		p.Syntax()
	}
	p.I++
	g.Kind = k
	p.grantees(g)
	return a
}

func (p *parser) reassignOwned() Statement {
	p.Expect("owned", "by")
	r := &ReassignOwned{Roles: p.roleSpecs()}
	p.Expect("to")
	r.To = p.roleSpec()
	return r
}

func (p *parser) dropOwned() Statement {
	p.I += 2
	d := &DropOwned{Roles: p.roleSpecs()}
	d.Cascade = p.cascade()
	return d
}
