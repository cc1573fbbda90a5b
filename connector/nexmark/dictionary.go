package nexmark

import (
	"math/bits"
	"strconv"
	"sync"
)

// Sizes of the static tables.
const (
	hotChannels   = 4
	channels      = 10_000
	priceSteps    = 4096 // of the table of prices
	priceFraction = 20   // bits after the binary point in that table
	// priceGrowth is 10^(6/priceSteps): prices run over six decades, evenly in their logarithm.
	priceGrowth = 1.0033786221027048
)

// dictionary holds the strings and numbers that many events share. It does not depend on the seed.
type dictionary struct {
	channel, url []string // the hot channels, then the others
	price        [priceSteps + 1]uint64
	letter       [256]byte // one in thirteen is a blank
	names        []string  // first and last name together
}

// sharedDictionary makes the tables when the first generator needs them; they are immutable.
var sharedDictionary = sync.OnceValue(newDictionary)

func newDictionary() *dictionary {
	d := &dictionary{}
	state := uint64(golden)
	random := func(n int64) int64 {
		state += golden
		return below(mix64(state), n)
	}
	base := func() string {
		b := []byte("https://www.nexmark.com/")
		for range 3 {
			for n := 3 + random(2); n > 0; n-- {
				c := byte('a' + random(26))
				if random(13) == 0 {
					c = '_'
				}
				b = append(b, c)
			}
			b = append(b, '/')
		}
		return string(b) + "item.htm?query=1"
	}
	for _, c := range [hotChannels]string{"Google", "Facebook", "Baidu", "Apple"} {
		d.channel = append(d.channel, c)
		d.url = append(d.url, base())
	}
	for i := range channels {
		d.channel = append(d.channel, "channel-"+strconv.Itoa(i))
		u := base()
		if random(10) > 0 {
			u += "&channel_id=" + strconv.Itoa(int(bits.Reverse32(uint32(i))&0x7fffffff))
		}
		d.url = append(d.url, u)
	}
	// Plain multiplications round the same on every machine, the library's powers need not.
	p := 100.0
	for i := range d.price {
		d.price[i] = uint64(p * (1 << priceFraction))
		p = float64(p * priceGrowth)
	}
	for i := range d.letter {
		d.letter[i] = byte('a' + i%26)
		if i%13 == 0 {
			d.letter[i] = ' '
		}
	}
	first := []string{"Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"}
	last := []string{"Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"}
	for _, f := range first {
		for _, l := range last {
			d.names = append(d.names, f+" "+l)
		}
	}
	return d
}

// priceOf returns a price between 1 and 10^6 in hundredths, evenly distributed in its logarithm.
func (d *dictionary) priceOf(h uint64) int64 {
	i := h >> 52
	f := h >> 28 & (1<<24 - 1)
	lo := d.price[i]
	v := lo + (d.price[i+1]-lo)*f>>24
	return int64((v + 1<<(priceFraction-1)) >> priceFraction)
}

// text writes n letters and blanks, no blank at the ends.
func (d *dictionary) text(b []byte, seed uint64) {
	for i := 0; i < len(b); i += wordBytes {
		seed += golden
		z := mix64(seed)
		for j := i; j < min(i+wordBytes, len(b)); j++ {
			b[j] = d.letter[byte(z)]
			z >>= 8
		}
	}
	if b[0] == ' ' {
		b[0] = 'a'
	}
	if b[len(b)-1] == ' ' {
		b[len(b)-1] = 'z'
	}
}

func cities() []string {
	return []string{
		"Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
	}
}

func states() []string { return []string{"AZ", "CA", "ID", "OR", "WA", "WY"} }
