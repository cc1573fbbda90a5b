package functions_test

import (
	"testing"

	"github.com/streamdb/streamdb/sql/expr"
	"github.com/streamdb/streamdb/sql/functions"
	"github.com/streamdb/streamdb/types"
)

func benchChunk() *types.Chunk {
	c := types.NewChunk([]types.Type{types.Int8, types.Int8, types.Float8, types.Text})
	for i := range types.MaxChunkRows {
		c.Cols[0].Int = append(c.Cols[0].Int, int64(i*7919%10000))
		c.Cols[1].Int = append(c.Cols[1].Int, int64(i))
		c.Cols[2].Float = append(c.Cols[2].Float, float64(i)*1.5)
		c.Cols[3].Str = append(c.Cols[3].Str, []string{"apple", "google", "baidu"}[i%3])
	}
	c.N = types.MaxChunkRows
	return c
}

func call(id string, t types.Type, args ...*expr.Expr) *expr.Expr {
	return &expr.Expr{Kind: expr.Call, Type: t, Func: id, Args: args, Pos: -1}
}

func intConst(v int64) *expr.Expr { return expr.Literal(types.Datum{Type: types.Int8, Int: v}) }

// BenchmarkEval reports nanoseconds per row of programs over a chunk without NULLs, and of hand-written loops for comparison.
func BenchmarkEval(b *testing.B) {
	reg := functions.Builtins()
	c := benchChunk()
	x, y, f, s := expr.Col(0, types.Int8), expr.Col(1, types.Int8), expr.Col(2, types.Float8), expr.Col(3, types.Text)
	for _, bm := range []struct {
		name   string
		e      *expr.Expr
		filter bool
	}{
		{"add", call("int8pl(int8,int8)", types.Int8, x, y), false},
		{"add-const", call("int8pl(int8,int8)", types.Int8, x, intConst(5)), false},
		{"mul", call("int8mul(int8,int8)", types.Int8, x, y), false},
		{"float-mul", call("float8mul(float8,float8)", types.Float8, f, expr.Literal(types.Datum{Type: types.Float8, Float: 0.908})), false},
		{"less", call("int8lt(int8,int8)", types.Bool, x, y), false},
		{"text-equal", call("texteq(text,text)", types.Bool, s, expr.Literal(types.Datum{Type: types.Text, Str: "apple"})), false},
		{"filter-less", call("int8lt(int8,int8)", types.Bool, x, intConst(5000)), true},
		{"filter-mod", call("int8eq(int8,int8)", types.Bool, call("int8mod(int8,int8)", types.Int8, x, intConst(123)), intConst(0)), true},
		{"filter-text", call("texteq(text,text)", types.Bool, s, expr.Literal(types.Datum{Type: types.Text, Str: "apple"})), true},
	} {
		b.Run(bm.name, func(b *testing.B) {
			p, err := expr.Compile(bm.e, reg)
			if err != nil {
				b.Fatal(err)
			}
			var sel []uint16
			var errs expr.RowErrors
			b.ReportAllocs()
			for b.Loop() {
				if bm.filter {
					sel, err = p.Filter(c, nil, &errs, sel)
				} else {
					_, err = p.Eval(c, nil, &errs)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.N), "ns/row")
		})
	}
	hand := func(name string, f func()) {
		b.Run("hand-"+name, func(b *testing.B) {
			for b.Loop() {
				f()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.N), "ns/row")
		})
	}
	out, bools, sel := make([]int64, c.N), make([]bool, c.N), make([]uint16, c.N+1)
	p, q, words := c.Cols[0].Int, c.Cols[1].Int, c.Cols[3].Str
	hand("add", func() {
		for i := range out {
			out[i] = p[i] + q[i]
		}
	})
	hand("less", func() {
		for i := range bools {
			bools[i] = p[i] < q[i]
		}
	})
	hand("filter-less", func() {
		k := 0
		for i, v := range p {
			sel[k] = uint16(i)
			if v < 5000 {
				k++
			}
		}
	})
	hand("filter-mod", func() {
		k := 0
		for i, v := range p {
			sel[k] = uint16(i)
			if v%123 == 0 {
				k++
			}
		}
	})
	hand("filter-text", func() {
		k := 0
		for i, v := range words {
			sel[k] = uint16(i)
			if v == "apple" {
				k++
			}
		}
	})
}
