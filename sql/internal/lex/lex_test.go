package lex

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// show prints tokens as kind:value.
func show(t *testing.T, s string) string {
	toks, err := Lex(s)
	require.NoError(t, err, s)
	var out []string
	for _, k := range toks {
		switch k.K {
		case EOF:
		case Bad:
			out = append(out, fmt.Sprintf("bad:%s@%d", k.Err.Message, k.Err.Pos))
		default:
			out = append(out, fmt.Sprintf("%s:%s", [...]string{"", "id", "qid", "str", "bit", "int", "num", "param", "op", "p"}[k.K], k.Val))
		}
	}
	return strings.Join(out, " ")
}

func TestLex(t *testing.T) {
	for in, want := range map[string]string{
		"Select \"Foo\"\"x\" FOO": `id:select qid:Foo"x id:foo`,
		"1--2\n+3":                "int:1 op:+ int:3",
		"1 /* a /* b */ c */ 2":   "int:1 int:2",
		"1 # c":                   "int:1 op:# id:c",
		"a<-1":                    "id:a op:< op:- int:1",
		"a @-1":                   "id:a op:@- int:1",
		"a=-1":                    "id:a op:= op:- int:1",
		"a!=b":                    "id:a op:<> id:b",
		"a=>b":                    "id:a p:=> id:b",
		"7%-2":                    "int:7 op:%- int:2",
		"a::int":                  "id:a p::: id:int",
		"1..2":                    "int:1 p:.. int:2",
		"1.5e-3 .5 5. 1e":         "num:1.5e-3 num:.5 num:5. bad:trailing junk after numeric literal at or near \"1e\"@13",
		"9223372036854775807 9223372036854775808": "int:9223372036854775807 num:9223372036854775808",
		"007 0x1F 1_000":                                  "int:7 int:31 int:1000",
		"'it''s' 'a'\n 'b'":                               "str:it's str:ab",
		"E'a\\n\\101\\x41\\u00e9'":                        "str:a\nAAé",
		"$$a'b$$ $x$a$$b$x$":                              "str:a'b str:a$$b",
		"U&'\\0061' U&\"d\\0061t\" U&'!0061' UESCAPE '!'": "str:a qid:dat str:a",
		"N'x'":         "id:nchar str:x",
		"B'101' x'1F'": "bit:b101 bit:x1F",
		"$1 $12":       "param:1 param:12",
		"'abc":         "bad:unterminated quoted string at or near \"'abc\"@0",
		"a 'b":         "id:a bad:unterminated quoted string at or near \"'b\"@2",
		"\"\"":         "bad:zero-length delimited identifier at or near \"\"\"\"@0",
		"a b /* c":     "id:a id:b bad:unterminated /* comment at or near \"/* c\"@4",
		"ÄB":           "id:Äb",
	} {
		require.Equal(t, want, show(t, in), in)
	}
	for _, s := range []string{"\xff", "a\x00"} {
		_, err := Lex(s)
		require.Equal(t, pgerr.CharacterNotInRepertoire, pgerr.CodeOf(err))
	}
}

func TestKeywords(t *testing.T) {
	require.Equal(t, byte('R'), Category("select"))
	require.Equal(t, byte('U'), Category("materialized"))
	require.Equal(t, byte('T'), Category("left"))
	require.Equal(t, byte('C'), Category("coalesce"))
	require.Equal(t, byte(0), Category("emit"))
}
