package functions

import (
	"slices"
	"strconv"
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/types"
)

// ACLLetters are the letters of aclitem in the order of their bits.
const ACLLetters = "arwdDxtXUCTc"

// ACLNames are the keywords of ACLLetters.
var ACLNames = [len(ACLLetters)]string{
	"INSERT", "SELECT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER", "EXECUTE", "USAGE", "CREATE", "TEMPORARY", "CONNECT",
}

const (
	aclWordChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
	bootstrapOID = 10 // the superuser that grants what nobody else granted
)

// ACLName prints a role's name as aclitem does: in quotes unless it is made of letters, digits and underscores.
func ACLName(name string) string {
	if strings.Trim(name, aclWordChars) == "" {
		return name
	}
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

// aclItem is a value of type aclitem taken apart. Privileges and options are sets of bits in the order of ACLLetters.
type aclItem struct {
	grantee, grantor    uint32 // grantee 0 is everybody
	privileges, options uint16
}

func (a aclItem) text(cat expr.CatalogInfo) string {
	name := func(oid uint32) string {
		if cat != nil {
			if n, ok := cat.RoleName(oid); ok {
				return ACLName(n)
			}
		}
		return strconv.FormatUint(uint64(oid), 10)
	}
	var b strings.Builder
	if a.grantee != 0 {
		b.WriteString(name(a.grantee))
	}
	b.WriteByte('=')
	for i := range len(ACLLetters) {
		if a.privileges&(1<<i) != 0 {
			b.WriteByte(ACLLetters[i])
			if a.options&(1<<i) != 0 {
				b.WriteByte('*')
			}
		}
	}
	b.WriteByte('/')
	b.WriteString(name(a.grantor))
	return b.String()
}

// aclWord cuts a role's name, plain or in quotes, from the front of s.
func aclWord(s string) (word, rest string, err error) {
	s = strings.TrimLeft(s, " \t\n\r\v\f")
	quoted, i := false, 0
	var b strings.Builder
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' && quoted && i+1 < len(s) && s[i+1] == '"':
			b.WriteByte(c)
			i++
		case c == '"':
			quoted = !quoted
		case quoted || strings.IndexByte(aclWordChars, c) >= 0 || c >= 0x80:
			b.WriteByte(c)
		default:
			return b.String(), strings.TrimLeft(s[i:], " \t\n\r\v\f"), nil
		}
		if b.Len() > maxNameBytes {
			return "", "", pgerr.Newf(pgerr.NameTooLong, "identifier too long").WithDetail("Identifier must be less than %d characters.", maxNameBytes+1)
		}
	}
	return b.String(), "", nil
}

// parseACLItem is the input function of aclitem.
func parseACLItem(cat expr.CatalogInfo, s string) (aclItem, error) {
	var a aclItem
	word, rest, err := aclWord(s)
	if err != nil {
		return a, err
	}
	role := func(name string) (uint32, error) {
		if cat != nil {
			if oid, ok := cat.RoleOID(name); ok {
				return oid, nil
			}
		}
		// What a role that is no more was given has its number.
		if oid, err := strconv.ParseUint(name, 10, 32); err == nil {
			return uint32(oid), nil
		}
		return 0, pgerr.Newf(pgerr.UndefinedObject, "role %q does not exist", name)
	}
	if !strings.HasPrefix(rest, "=") {
		if word != "group" && word != "user" {
			return a, pgerr.Newf(pgerr.InvalidTextRepresentation, "unrecognized key word: %q", word).WithHint(`ACL key word must be "group" or "user".`)
		}
		if word, rest, err = aclWord(rest); err != nil {
			return a, err
		}
		if word == "" {
			return a, pgerr.Newf(pgerr.InvalidTextRepresentation, "missing name").WithHint(`A name must follow the "group" or "user" key word.`)
		}
	}
	rest, ok := strings.CutPrefix(rest, "=")
	if !ok {
		return a, pgerr.Newf(pgerr.InvalidTextRepresentation, `missing "=" sign`)
	}
	last := -1
	i := 0
	for ; i < len(rest); i++ {
		c := rest[i]
		if c == '*' {
			if last >= 0 {
				a.options |= 1 << last
			}
			continue
		}
		if c|0x20 < 'a' || c|0x20 > 'z' {
			break
		}
		if last = strings.IndexByte(ACLLetters, c); last < 0 {
			return a, pgerr.Newf(pgerr.InvalidTextRepresentation, "invalid mode character: must be one of %q", ACLLetters)
		}
		a.privileges |= 1 << last
	}
	if word != "" {
		if a.grantee, err = role(word); err != nil {
			return a, err
		}
	}
	rest, a.grantor = rest[i:], bootstrapOID
	if by, ok := strings.CutPrefix(rest, "/"); ok {
		if word, rest, err = aclWord(by); err != nil {
			return a, err
		}
		if word == "" {
			return a, pgerr.Newf(pgerr.InvalidTextRepresentation, `a name must follow the "/" sign`)
		}
		if a.grantor, err = role(word); err != nil {
			return a, err
		}
	}
	if strings.TrimSpace(rest) != "" {
		return a, pgerr.Newf(pgerr.InvalidTextRepresentation, "extra garbage at the end of the ACL specification")
	}
	return a, nil
}

func (c *call) aclItems(i int) ([]aclItem, error) {
	arr, err := c.array(i)
	if err != nil {
		return nil, err
	}
	if len(arr.Dims) > 1 {
		return nil, pgerr.Newf(pgerr.InvalidParameterValue, "ACL arrays must be one-dimensional")
	}
	out := make([]aclItem, len(arr.Elems))
	for k, e := range arr.Elems {
		if e.Null {
			return nil, pgerr.Newf(pgerr.NullValueNotAllowed, "ACL arrays must not contain null values")
		}
		if out[k], err = parseACLItem(env(c.f).Catalog, e.Str); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func aclExplode(c *call) ([][]types.Datum, error) {
	items, err := c.aclItems(0)
	var out [][]types.Datum
	for _, a := range items {
		for i, name := range ACLNames {
			if a.privileges&(1<<i) != 0 {
				out = append(out, []types.Datum{
					{Type: types.Oid, Int: int64(a.grantor)}, {Type: types.Oid, Int: int64(a.grantee)}, textDatum(name), {Type: types.Bool, Bool: a.options&(1<<i) != 0},
				})
			}
		}
	}
	return out, err
}

// aclDefaults are the letters that owners, and everybody, have by default, by the letter of the kind of object.
var aclDefaults = map[string][2]string{
	"c": {}, "r": {"arwdDxt"}, "s": {"rwU"}, "d": {"CTc", "Tc"}, "f": {"X", "X"}, "l": {"U", "U"}, "L": {"rw"}, "n": {"UC"}, "t": {"C"}, "F": {"U"},
	"S": {"U"}, "T": {"U", "U"}, "p": {},
}

func aclBits(letters string) uint16 {
	var p uint16
	for i := range len(letters) {
		p |= 1 << strings.IndexByte(ACLLetters, letters[i])
	}
	return p
}

func aclDefault(c *call) error {
	letters, ok := aclDefaults[c.str(0)]
	if !ok {
		return pgerr.Newf(pgerr.InternalError, "unrecognized objtype abbreviation: %s", c.str(0))
	}
	owner, cat := uint32(c.int(1)), env(c.f).Catalog
	var out []types.Datum
	for _, a := range [...]aclItem{{0, owner, aclBits(letters[1]), 0}, {owner, owner, aclBits(letters[0]), 0}} {
		if a.privileges != 0 {
			out = append(out, types.Datum{Type: types.T(types.OIDAclItem), Str: a.text(cat)})
		}
	}
	return c.setStr(types.EncodeArray(types.NewArray(types.OIDAclItem, out)))
}

func makeACLItem(c *call) error {
	a := aclItem{grantee: uint32(c.int(0)), grantor: uint32(c.int(1))}
	word := c.str(2)
	i := slices.Index(ACLNames[:], strings.ToUpper(word))
	if strings.EqualFold(word, "TEMP") {
		i = slices.Index(ACLNames[:], "TEMPORARY")
	}
	if i < 0 {
		return pgerr.Newf(pgerr.InvalidParameterValue, "unrecognized privilege type: %q", word)
	}
	a.privileges = 1 << i
	if c.bool(3) {
		a.options = a.privileges
	}
	return c.setStr(a.text(env(c.f).Catalog))
}

func aclContains(c *call) error {
	items, err := c.aclItems(0)
	if err != nil {
		return err
	}
	want, err := parseACLItem(env(c.f).Catalog, c.str(1))
	if err != nil {
		return err
	}
	return c.setBool(slices.ContainsFunc(items, func(a aclItem) bool {
		return a.grantee == want.grantee && a.grantor == want.grantor && a.privileges&want.privileges == want.privileges && a.options&want.options == want.options
	}))
}

// privilegeFunctions ask the catalog who may do what.
func privilegeFunctions() []entry {
	gone := func(which string) expr.Kernel {
		return each(func(*call) error { return pgerr.Newf(pgerr.FeatureNotSupported, "%s is no longer supported", which) })
	}
	out := []entry{
		fn("acldefault(char,oid)", "", each(aclDefault)), fn("makeaclitem(oid,oid,text,bool)", "", each(makeACLItem)),
		fn("aclcontains(_aclitem,aclitem)", "", each(aclContains)),
		fn("aclitemeq(aclitem,aclitem)", "", each(func(c *call) error { return c.setBool(c.str(0) == c.str(1)) })),
		fn("aclinsert(_aclitem,aclitem)", "", gone("aclinsert")), fn("aclremove(_aclitem,aclitem)", "", gone("aclremove")),
	}
	objects := map[string][]string{
		"table": {"text", "oid"}, "database": {"text", "oid"}, "schema": {"text", "oid"}, "function": {"text", "oid"}, "sequence": {"text", "oid"},
		"tablespace": {"text", "oid"}, "type": {"text", "oid"}, "language": {"text", "oid"}, "any_column": {"text", "oid"},
		"foreign_data_wrapper": {"text", "oid"}, "server": {"text", "oid"}, "column": {"text,text", "oid,text", "text,int2", "oid,int2"},
	}
	for name, args := range objects {
		for _, a := range args {
			for _, u := range [...]string{"", "name,", "oid,"} {
				out = append(out, entry{
					id: "has_" + name + "_privilege(" + u + a + ",text)", sig: "bool f t s", doc: "whether a user has a privilege",
					impl: impl{kernel: hasPrivilege(name, strings.Split(u+a, ","), u != "")},
				})
			}
		}
	}
	for _, a := range [...]string{"name,text", "oid,text", "name,name,text", "oid,oid,text", "name,oid,text", "oid,name,text"} {
		out = append(out, fn("pg_has_role("+a+")", "", hasRole(strings.Split(a, ","))))
	}
	return out
}

// ref reads the argument that names an object.
func (c *call) ref(i int, kind string) expr.Ref {
	if kind == "text" || kind == "name" {
		return expr.Ref{Name: c.str(i), Named: true}
	}
	return expr.Ref{OID: uint32(c.int(i))}
}

func hasPrivilege(kind string, args []string, user bool) expr.Kernel {
	return each(func(c *call) error {
		e := env(c.f)
		if e.Catalog == nil {
			c.setNull()
			return nil
		}
		q := expr.PrivilegeQuery{Kind: kind, User: expr.Ref{Name: e.User, Named: true}, Path: e.Schemas, Privileges: c.str(len(args))}
		at := 0
		if user {
			q.User, at = c.ref(0, args[0]), 1
		}
		q.Object = c.ref(at, args[at])
		if kind == "column" {
			q.Column = c.ref(at+1, args[at+1])
		}
		has, known, err := e.Catalog.HasPrivilege(&q)
		if err == nil && !known {
			c.setNull()
			return nil
		}
		c.out.Bool[c.row] = has
		return err
	})
}

func hasRole(args []string) expr.Kernel {
	last := len(args) - 1
	return each(func(c *call) error {
		e := env(c.f)
		if e.Catalog == nil {
			c.setNull()
			return nil
		}
		user := expr.Ref{Name: e.User, Named: true}
		if last == 2 {
			user = c.ref(0, args[0])
		}
		has, err := e.Catalog.HasRole(user, c.ref(last-1, args[last-1]), c.str(last))
		c.out.Bool[c.row] = has
		return err
	})
}
