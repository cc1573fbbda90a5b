package functions

import (
	"strings"

	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/unicode/norm"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// unicodeFunctions lists Unicode normalization.
func unicodeFunctions() []entry {
	return []entry{
		fn("normalize(text,text)", "normalize('a' || chr(769), NFC)", each(func(c *call) error {
			f, err := c.normalForm()
			c.out.Str[c.row] = f.String(c.str(0))
			return err
		})),
		fn("is_normalized(text,text)", "chr(225) IS NFD NORMALIZED", each(func(c *call) error {
			f, err := c.normalForm()
			c.out.Bool[c.row] = f.IsNormalString(c.str(0))
			return err
		})),
	}
}

// normalForm returns the form that argument 1 names, NFC when it is left out.
func (c *call) normalForm() (norm.Form, error) {
	name := "NFC"
	if c.has(1) {
		name = c.str(1)
	}
	switch strings.ToUpper(name) {
	case "NFC":
		return norm.NFC, nil
	case "NFD":
		return norm.NFD, nil
	case "NFKC":
		return norm.NFKC, nil
	case "NFKD":
		return norm.NFKD, nil
	}
	return norm.NFC, pgerr.Newf(pgerr.InvalidParameterValue, "invalid normalization form: %s", name)
}

// singleByte returns the encoding of one byte a character that a name stands for.
func singleByte(name string) (*charmap.Charmap, bool) {
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "", " ", "").Replace(name)) {
	case "latin1", "iso88591":
		return charmap.ISO8859_1, true
	case "latin2", "iso88592":
		return charmap.ISO8859_2, true
	case "latin5", "iso88599":
		return charmap.ISO8859_9, true
	case "latin9", "iso885915":
		return charmap.ISO8859_15, true
	case "win1250", "windows1250":
		return charmap.Windows1250, true
	case "win1251", "windows1251", "win":
		return charmap.Windows1251, true
	case "win1252", "windows1252":
		return charmap.Windows1252, true
	case "koi8", "koi8r":
		return charmap.KOI8R, true
	}
	return nil, false
}
