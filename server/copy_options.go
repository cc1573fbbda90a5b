package server

import (
	"strings"

	"github.com/streamdb/streamdb/internal/pgerr"
	"github.com/streamdb/streamdb/pgcopy"
	"github.com/streamdb/streamdb/planner"
	"github.com/streamdb/streamdb/sql"
	"github.com/streamdb/streamdb/types"
)

// copyOptions are the options of a COPY statement before the columns are known.
type copyOptions struct {
	pgcopy.Options
	given                          map[string]bool
	forceQuote, forceNotNull, null []sql.Ident // columns of FORCE_QUOTE, FORCE_NOT_NULL, FORCE_NULL
	forceAll                       bool        // FORCE_QUOTE *
}

// copyOptionsOf checks the options in PostgreSQL's order, so that of several faults the same one is reported.
func copyOptionsOf(st *sql.Copy) (*copyOptions, error) {
	o := &copyOptions{given: map[string]bool{}}
	values := map[string]string{}
	header := pgcopy.HeaderOff
	format := pgcopy.Text
	for _, opt := range st.Options {
		if o.given[opt.Name] {
			return nil, pgerr.Newf(pgerr.SyntaxError, "conflicting or redundant options").At(opt.Pos)
		}
		o.given[opt.Name] = true
		values[opt.Name] = opt.Value
		var err error
		switch opt.Name {
		case "format":
			if opt.NoValue {
				return nil, pgerr.Newf(pgerr.SyntaxError, "%s requires a parameter", opt.Name)
			}
			switch opt.Value {
			case "text":
			case "csv":
				format = pgcopy.CSV
			case "binary":
				format = pgcopy.Binary
			default:
				return nil, pgerr.Newf(pgerr.InvalidParameterValue, "COPY format %q not recognized", opt.Value).At(opt.Pos)
			}
		case "freeze":
			_, err = copyBool(opt)
		case "header":
			header, err = copyHeader(opt, st.From)
		case "delimiter", "null", "quote", "escape":
			if opt.NoValue || opt.List != nil || opt.Star {
				err = pgerr.Newf(pgerr.SyntaxError, "%s requires a parameter", opt.Name)
			}
		case "force_quote":
			o.forceQuote, o.forceAll = opt.List, opt.Star
			err = needsColumns(opt, opt.Star)
		case "force_not_null":
			o.forceNotNull = opt.List
			err = needsColumns(opt, false)
		case "force_null":
			o.null = opt.List
			err = needsColumns(opt, false)
		case "encoding":
			if _, bad := utf8Only(opt.Value); bad != nil {
				err = pgerr.Newf(pgerr.InvalidParameterValue, "argument to option %q must be a valid encoding name", opt.Name).At(opt.Pos)
			}
		default:
			err = pgerr.Newf(pgerr.SyntaxError, "option %q not recognized", opt.Name).At(opt.Pos)
		}
		if err != nil {
			return nil, err
		}
	}
	o.Options = pgcopy.Defaults(format)
	o.Header = header
	return o, o.check(values, st.From)
}

func needsColumns(opt sql.CopyOption, star bool) error {
	if opt.List == nil && !star {
		return pgerr.Newf(pgerr.InvalidParameterValue, "argument to option %q must be a list of column names", opt.Name).At(opt.Pos)
	}
	return nil
}

func copyBool(opt sql.CopyOption) (bool, error) {
	v, err := boolean(opt.Value)
	if err != nil {
		return false, pgerr.Newf(pgerr.SyntaxError, "%s requires a Boolean value", opt.Name)
	}
	return v == "on", nil
}

func copyHeader(opt sql.CopyOption, from bool) (pgcopy.Header, error) {
	if strings.EqualFold(opt.Value, "match") {
		if !from {
			return 0, pgerr.Newf(pgerr.FeatureNotSupported, "cannot use \"match\" with HEADER in COPY TO")
		}
		return pgcopy.HeaderMatch, nil
	}
	on, err := copyBool(opt)
	if err != nil {
		return 0, pgerr.Newf(pgerr.SyntaxError, "%s requires a Boolean value or \"match\"", opt.Name)
	}
	if on {
		return pgcopy.HeaderOn, nil
	}
	return pgcopy.HeaderOff, nil
}

// check takes over the characters and holds the rules between options.
func (o *copyOptions) check(values map[string]string, from bool) error {
	csv, binary := o.Format == pgcopy.CSV, o.Format == pgcopy.Binary
	refuse := func(code pgerr.Code, format string, args ...any) error { return pgerr.Newf(code, format, args...) }
	switch {
	case binary && o.given["delimiter"]:
		return refuse(pgerr.SyntaxError, "cannot specify DELIMITER in BINARY mode")
	case binary && o.given["null"]:
		return refuse(pgerr.SyntaxError, "cannot specify NULL in BINARY mode")
	}
	one := func(option string, to *byte) error {
		if !o.given[option] {
			return nil
		}
		if len(values[option]) != 1 {
			return refuse(pgerr.FeatureNotSupported, "COPY %s must be a single one-byte character", option)
		}
		*to = values[option][0]
		return nil
	}
	if err := one("delimiter", &o.Delimiter); err != nil {
		return err
	}
	if o.given["null"] {
		o.Null = values["null"]
	}
	switch {
	case o.Delimiter == '\n' || o.Delimiter == '\r':
		return refuse(pgerr.InvalidParameterValue, "COPY delimiter cannot be newline or carriage return")
	case strings.ContainsAny(o.Null, "\r\n"):
		return refuse(pgerr.InvalidParameterValue, "COPY null representation cannot use newline or carriage return")
	case !csv && strings.IndexByte(`\.abcdefghijklmnopqrstuvwxyz0123456789`, o.Delimiter) >= 0:
		return refuse(pgerr.InvalidParameterValue, "COPY delimiter cannot be %q", string(rune(o.Delimiter)))
	case binary && o.Header != pgcopy.HeaderOff:
		return refuse(pgerr.FeatureNotSupported, "cannot specify HEADER in BINARY mode")
	case !csv && o.given["quote"]:
		return refuse(pgerr.FeatureNotSupported, "COPY quote available only in CSV mode")
	}
	if err := one("quote", &o.Quote); err != nil {
		return err
	}
	o.Escape = o.Quote
	switch {
	case csv && o.Delimiter == o.Quote:
		return refuse(pgerr.InvalidParameterValue, "COPY delimiter and quote must be different")
	case !csv && o.given["escape"]:
		return refuse(pgerr.FeatureNotSupported, "COPY escape available only in CSV mode")
	}
	if err := one("escape", &o.Escape); err != nil {
		return err
	}
	for _, f := range []struct {
		option, words, only string
		wrong               bool
	}{
		{"force_quote", "force quote", "COPY TO", from}, {"force_not_null", "force not null", "COPY FROM", !from}, {"force_null", "force null", "COPY FROM", !from},
	} {
		switch {
		case o.given[f.option] && !csv:
			return refuse(pgerr.FeatureNotSupported, "COPY %s available only in CSV mode", f.words)
		case o.given[f.option] && f.wrong:
			return refuse(pgerr.FeatureNotSupported, "COPY %s only available using %s", f.words, f.only)
		}
	}
	switch {
	case !binary && strings.IndexByte(o.Null, o.Delimiter) >= 0:
		return refuse(pgerr.FeatureNotSupported, "COPY delimiter must not appear in the NULL specification")
	case csv && strings.IndexByte(o.Null, o.Quote) >= 0:
		return refuse(pgerr.FeatureNotSupported, "CSV quote character must not appear in the NULL specification")
	}
	return nil
}

// known checks that the columns of options are columns of the relation.
func (o *copyOptions) known(rel *planner.Relation) error {
	for _, names := range [][]sql.Ident{o.forceQuote, o.forceNotNull, o.null} {
		if names == nil {
			continue
		}
		for _, n := range names {
			if _, err := copyColumns(rel, []sql.Ident{n}); err != nil {
				return err
			}
		}
	}
	return nil
}

// of completes the options for the columns that are copied. relation is the table's name, "" for a query.
func (o *copyOptions) of(cols types.Schema, relation string) (pgcopy.Options, error) {
	out := o.Options
	for _, f := range []struct {
		names []sql.Ident
		to    *[]bool
		words string
	}{{o.forceQuote, &out.ForceQuote, "FORCE_QUOTE"}, {o.forceNotNull, &out.ForceNotNull, "FORCE_NOT_NULL"}, {o.null, &out.ForceNull, "FORCE_NULL"}} {
		if len(f.names) == 0 {
			continue
		}
		*f.to = make([]bool, len(cols))
		for _, n := range f.names {
			i := columnIndex(cols, n.Name)
			if i < 0 {
				if relation == "" {
					return out, pgerr.Newf(pgerr.UndefinedColumn, "column %q does not exist", n.Name)
				}
				return out, pgerr.Newf(pgerr.InvalidColumnReference, "%s column %q not referenced by COPY", f.words, n.Name)
			}
			(*f.to)[i] = true
		}
	}
	if o.forceAll {
		out.ForceQuote = make([]bool, len(cols))
		for i := range out.ForceQuote {
			out.ForceQuote[i] = true
		}
	}
	return out, nil
}

func columnIndex(cols types.Schema, name string) int {
	for i := range cols {
		if cols[i].Name == name {
			return i
		}
	}
	return -1
}
