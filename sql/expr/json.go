package expr

import (
	"encoding/base64"
	"encoding/json"
	"reflect"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/types"
)

// storedExpr is the stored form of an Expr. Exactly one of Null, Text and Raw tells a constant's value.
type storedExpr struct {
	Kind Kind          `json:"k"`
	Type string        `json:"t"`
	OID  types.OID     `json:"o"`
	Mod  *int32        `json:"m,omitempty"`
	Col  int           `json:"c,omitempty"`
	Null bool          `json:"null,omitempty"`
	Text *string       `json:"v,omitempty"`
	Raw  *string       `json:"b,omitempty"` // base64 of the storage form, for values whose text is not exact
	Func string        `json:"f,omitempty"`
	Args []*storedExpr `json:"a,omitempty"`

	Names []string     `json:"n,omitempty"`
	Cols  []storedType `json:"cs,omitempty"`
}

type storedType struct {
	OID types.OID `json:"o"`
	Mod int32     `json:"m"`
}

// datumText returns the text of a value that is not NULL, independent of any session.
func datumText(d types.Datum) string {
	return string(types.AppendText(nil, defaultFormat, constVector(d), 0))
}

// MarshalJSON writes the exact form of e that stored plans hold: types as OID, modifier and name (for readers), values as text.
func (e *Expr) MarshalJSON() ([]byte, error) { return json.Marshal(storedOf(e)) }

// storedOf converts a whole tree: encoding/json looks again through what a MarshalJSON returns, at every level.
func storedOf(e *Expr) *storedExpr {
	if e == nil {
		return nil
	}
	s := &storedExpr{Kind: e.Kind, Type: e.Type.String(), OID: e.Type.OID, Col: e.Col, Func: e.Func, Names: e.Names}
	for _, a := range e.Args {
		s.Args = append(s.Args, storedOf(a))
	}
	for _, t := range e.Cols {
		s.Cols = append(s.Cols, storedType(t))
	}
	if e.Type.Mod != -1 {
		s.Mod = &e.Type.Mod
	}
	if e.Const != nil {
		switch d := *e.Const; {
		case d.Null:
			s.Null = true
		default:
			d.Type = e.Type
			text := datumText(d)
			back, err := types.ParseText(defaultFormat, types.T(e.Type.OID), text)
			back.Type = e.Type
			if err == nil && reflect.DeepEqual(back, d) {
				s.Text = &text
				break
			}
			if e.Type.Kind() != types.KindString {
				s.Text = &text
				break
			}
			raw := base64.StdEncoding.EncodeToString([]byte(d.Str))
			s.Raw = &raw
		}
	}
	return s
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Expr) UnmarshalJSON(b []byte) error {
	var s storedExpr
	if err := json.Unmarshal(b, &s); err != nil {
		return pgerr.Wrap(pgerr.DataCorrupted, err, "read stored expression")
	}
	return s.expr(e)
}

// expr sets e to what is stored.
func (s *storedExpr) expr(e *Expr) error {
	*e = Expr{Kind: s.Kind, Type: types.T(s.OID), Col: s.Col, Func: s.Func, Names: s.Names, Pos: -1}
	for _, a := range s.Args {
		if a == nil {
			e.Args = append(e.Args, nil)
			continue
		}
		x := &Expr{}
		if err := a.expr(x); err != nil {
			return err
		}
		e.Args = append(e.Args, x)
	}
	for _, t := range s.Cols {
		e.Cols = append(e.Cols, types.Type(t))
	}
	if s.Mod != nil {
		e.Type.Mod = *s.Mod
	}
	if s.Kind != Const {
		return nil
	}
	d := types.NullDatum(e.Type)
	switch {
	case s.Text != nil:
		v, err := types.ParseText(defaultFormat, types.T(s.OID), *s.Text)
		if err != nil {
			return pgerr.Wrap(pgerr.DataCorrupted, err, "read stored constant")
		}
		d, d.Type = v, e.Type
	case s.Raw != nil:
		raw, err := base64.StdEncoding.DecodeString(*s.Raw)
		if err != nil {
			return pgerr.Wrap(pgerr.DataCorrupted, err, "read stored constant")
		}
		d.Null, d.Str = false, string(raw)
	}
	e.Const = &d
	return nil
}
