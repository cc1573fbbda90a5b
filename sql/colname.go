package sql

import (
	"github.com/pingcap/tidb/pkg/parser/ast"

	"github.com/streamdb/streamdb/sql/pgext"
)

// noName is what PostgreSQL calls a column that nothing names.
const noName = "?column?"

// ColumnName returns the name that PostgreSQL gives to a select item without AS (FigureColname).
func ColumnName(e ast.ExprNode) string {
	if name, strength := figure(e); strength > 0 {
		return name
	}
	return noName
}

// figure returns a name and how good it is: 0 none, 1 of a type or a keyword, 2 of a column or function.
func figure(e ast.ExprNode) (string, int) {
	switch v := pgext.ExprOf(e).(type) {
	case *pgext.Column:
		return v.Names[len(v.Names)-1], 2
	case *pgext.Field:
		return v.Name, 2
	case *pgext.Subscript:
		return figure(v.X)
	case *pgext.Slice:
		return figure(v.X)
	case *pgext.FieldStar:
		return figure(v.X)
	case *pgext.Call:
		return v.Name, 2
	case *pgext.WindowCall:
		return v.Call.Name, 2
	case *pgext.Special:
		return v.Name, 2
	case *pgext.SQLValue:
		return v.Name, 2
	case *pgext.Collate:
		return figure(v.X)
	case *pgext.Cast:
		if name, strength := figure(v.X); strength > 1 {
			return name, strength
		}
		return typeLabel(v.Type)
	case *pgext.TypedLiteral:
		return typeLabel(v.Type)
	case *pgext.Const:
		if v.Kind == pgext.ConstBool {
			return "bool", 1
		}
	case *pgext.Case:
		if v.Else != nil {
			if name, strength := figure(v.Else); strength > 1 {
				return name, strength
			}
		}
		return "case", 1
	case *pgext.Array, *pgext.ArrayQuery:
		return "array", 2
	case *pgext.Row:
		return "row", 2
	case *pgext.Exists:
		if !v.Not {
			return "exists", 2
		}
	case *pgext.Subquery:
		return figureQuery(pgext.QueryOf(v.Query))
	}
	return "", 0
}

func typeLabel(text string) (string, int) {
	t, err := ParseTypeName(text)
	if err != nil {
		return "", 0
	}
	return t.Name, 1
}

// figureQuery names a scalar sub-select by its only column.
func figureQuery(q *pgext.Query) (string, int) {
	for q.SetOp != nil {
		q = q.SetOp.Left
	}
	switch {
	case q.Select != nil && len(q.Select.Targets) > 0:
		t := q.Select.Targets[0]
		switch {
		case t.Alias != "":
			return t.Alias, 2
		case t.X != nil: // the sub-select has named its column, be it with "?column?"
			return ColumnName(t.X), 2
		}
	case q.Values != nil:
		return "column1", 2
	}
	return "", 0
}
