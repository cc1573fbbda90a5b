package lex

import "testing"

// FuzzLex holds for any text: tokens lie in order inside of it, the last one is the end or what cannot be read, and errors carry a code and a place.
func FuzzLex(f *testing.F) {
	for _, s := range []string{
		`select "a""b", U&'\0441', E'x\ny', $$d$$, $t$q$t$, 1.5e10, 0x1F, $1, a::int /* /* */ */ -- c`, `1 <-2 @-@ 3 !=- 4`, `'a' 'b'`, "'a'\n'b'", `B'01' X'ff'`, "\x00", `1_000`, `e'\u00e9\`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		toks, err := Lex(s)
		if err != nil {
			return
		}
		if len(toks) == 0 || (toks[len(toks)-1].K != EOF && toks[len(toks)-1].K != Bad) {
			t.Fatalf("%q: no end", s)
		}
		last := 0
		for _, k := range toks {
			if k.Pos < last || k.Pos > len(s) {
				t.Fatalf("%q: token at %d after %d", s, k.Pos, last)
			}
			last = k.Pos
			if k.K == Bad && (k.Err == nil || k.Err.Code == "" || k.Err.Pos > len(s)) {
				t.Fatalf("%q: bad token without a placed error", s)
			}
		}
	})
}
