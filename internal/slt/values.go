package slt

import (
	"crypto/md5" //nolint:gosec // the format's own digest of results, not a defence
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// result is what a query returned, in text form.
type result struct {
	types []uint32
	rows  [][]string
	tag   pgconn.CommandTag
}

// cell is a value as files show it.
func cell(b []byte) string {
	switch {
	case b == nil:
		return "NULL"
	case len(b) == 0:
		return "(empty)"
	}
	s := strings.ReplaceAll(string(b), "\n", `\n`)
	return strings.ReplaceAll(s, "\t", `\t`)
}

// typeMatches tells whether a column of the type may stand under the letter.
func typeMatches(letter byte, oid uint32) bool {
	switch letter {
	case 'I':
		return oid == pgtype.Int2OID || oid == pgtype.Int4OID || oid == pgtype.Int8OID || oid == pgtype.OIDOID
	case 'R':
		return oid == pgtype.Float4OID || oid == pgtype.Float8OID || oid == pgtype.NumericOID
	case 'B':
		return oid == pgtype.BoolOID
	}
	return true
}

// letterOf is the type letter of a column, for messages and rewriting.
func letterOf(oid uint32) byte {
	for _, l := range []byte("IRB") {
		if typeMatches(l, oid) {
			return l
		}
	}
	return 'T'
}

func letters(oids []uint32) string {
	b := make([]byte, len(oids))
	for i, o := range oids {
		b[i] = letterOf(o)
	}
	return string(b)
}

func fold(line string) string { return strings.Join(strings.Fields(line), " ") }

// lines returns the rows as lines in the order that the mode asks for.
func lines(rows [][]string, mode sortMode) []string {
	var out []string
	if mode == valueSort {
		for _, r := range rows {
			for _, v := range r {
				out = append(out, fold(v))
			}
		}
		slices.Sort(out)
		return out
	}
	for _, r := range rows {
		out = append(out, fold(strings.Join(r, " ")))
	}
	if mode == rowSort {
		slices.Sort(out)
	}
	return out
}

// digest is the short form of a large result.
func digest(rows [][]string, mode sortMode) string {
	ordered := slices.Clone(rows)
	var values []string
	if mode == rowSort {
		slices.SortStableFunc(ordered, func(a, b []string) int { return strings.Compare(strings.Join(a, " "), strings.Join(b, " ")) })
	}
	for _, r := range ordered {
		values = append(values, r...)
	}
	if mode == valueSort {
		slices.Sort(values)
	}
	h := md5.New() //nolint:gosec // see the import
	for _, v := range values {
		h.Write([]byte(v + "\n"))
	}
	return fmt.Sprintf("%d values hashing to %s", len(values), hex.EncodeToString(h.Sum(nil)))
}

func isDigest(want []string) bool {
	return len(want) == 1 && strings.Contains(want[0], " values hashing to ")
}

// compare returns "" when the rows are those wanted, and a description of the difference otherwise.
func compare(want []string, rows [][]string, mode sortMode, columns int) string {
	if isDigest(want) {
		if got := digest(rows, mode); got != fold(want[0]) {
			return fmt.Sprintf("  want %s\n  have %s\n", fold(want[0]), got)
		}
		return ""
	}
	exp := make([]string, len(want))
	for i, l := range want {
		exp[i] = fold(l)
	}
	have := lines(rows, mode)
	if mode != noSort {
		slices.Sort(exp)
	}
	if slices.Equal(exp, have) {
		return ""
	}
	if columns > 1 && mode != valueSort && len(exp) == columns*len(rows) && len(rows) > 0 {
		// The oldest form of the format: one value per line.
		ordered := slices.Clone(rows)
		if mode == rowSort {
			slices.SortStableFunc(ordered, func(a, b []string) int { return strings.Compare(strings.Join(a, " "), strings.Join(b, " ")) })
		}
		var values, raw []string
		for _, r := range ordered {
			for _, v := range r {
				values = append(values, fold(v))
			}
		}
		for _, l := range want {
			raw = append(raw, fold(l))
		}
		if slices.Equal(raw, values) {
			return ""
		}
	}
	return diff(exp, have)
}

// maxDiffLines caps a difference that is printed.
const maxDiffLines = 60

// diff shows lines only wanted with -, only returned with +, along the longest common subsequence.
func diff(want, have []string) string {
	var b strings.Builder
	printed := 0
	put := func(mark byte, s string) {
		if printed++; printed <= maxDiffLines {
			fmt.Fprintf(&b, "  %c %s\n", mark, s)
		}
	}
	for len(want) > 0 && len(have) > 0 && want[0] == have[0] && len(want)+len(have) > 2*maxDiffLines {
		want, have = want[1:], have[1:]
	}
	if len(want)*len(have) > maxDiffLines*maxDiffLines*16 {
		want, have = want[:min(len(want), maxDiffLines)], have[:min(len(have), maxDiffLines)]
	}
	common := make([][]int, len(want)+1)
	for i := range common {
		common[i] = make([]int, len(have)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for k := len(have) - 1; k >= 0; k-- {
			if want[i] == have[k] {
				common[i][k] = common[i+1][k+1] + 1
			} else {
				common[i][k] = max(common[i+1][k], common[i][k+1])
			}
		}
	}
	i, k := 0, 0
	for i < len(want) || k < len(have) {
		switch {
		case i < len(want) && k < len(have) && want[i] == have[k]:
			put(' ', want[i])
			i, k = i+1, k+1
		case k == len(have) || i < len(want) && common[i+1][k] >= common[i][k+1]:
			put('-', want[i])
			i++
		default:
			put('+', have[k])
			k++
		}
	}
	if printed > maxDiffLines {
		fmt.Fprintf(&b, "  … %d more lines\n", printed-maxDiffLines)
	}
	return b.String()
}
