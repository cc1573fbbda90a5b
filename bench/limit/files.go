package limit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"time"
)

// What is made of the bids in files.
const (
	FileAll    = "all"    // every column of every bid; the checksum is that of Q0
	FileTumble = "tumble" // Tumble
)

const (
	fileBlock = 1 << 20
	filePad   = 16 // bytes behind a block that may be read
	dateBytes = len("2006-01-02")
)

// Files runs a loop over the bids in files of one encoding: CSV with a header or JSON, as streamdb's sinks write them, or Avro without a codec, with the members in the order of the table. That there are no
// quotes and escapes, no NULL and no other order is what it knows and the engine does not. Windows are open until the end, because the files may share one stream. Events are the bids.
func Files(encode, query string, paths []string) (Result, error) {
	var r Result
	var s bidScanner
	s.all = query == FileAll
	rows, part := s.csv, eachPart
	switch encode {
	case "CSV":
	case "JSON":
		rows = s.json
	case "AVRO":
		rows, part = s.avro, eachAvroBlock
	default:
		return r, fmt.Errorf("there is no loop for ENCODE %s", encode)
	}
	var sums windowSums
	take := func() {
		r.Events += int64(s.n)
		if s.all {
			for i, p := range s.price[:s.n] {
				r.Checksum += uint64(p) + uint64(s.text[2][i].to-s.text[2][i].from)
			}
			r.Rows += int64(s.n)
			return
		}
		sums.add(s.ts[:s.n], s.auction[:s.n], s.price[:s.n])
	}
	buf := make([]byte, fileBlock+filePad)
	for _, path := range paths {
		if err := part(path, buf, encode == "CSV", func(b []byte) {
			for len(b) > 0 {
				b = b[rows(b):]
				take()
			}
		}); err != nil || s.err != nil {
			return r, errors.Join(err, s.err)
		}
	}
	if !s.all {
		sums.emit(&r)
	}
	return r, nil
}

// eachRead reads a file through buf. take is called whenever there is more of it, and returns how many of the bytes in buf it is done with: those of whole units. filePad bytes behind them may be read.
func eachRead(path string, buf []byte, unit string, take func(have int) (used int)) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	have := 0
	for {
		n, err := file.Read(buf[have:fileBlock])
		have += n
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			if have > 0 {
				return fmt.Errorf("%s does not end with a whole %s", path, unit)
			}
			return nil
		}
		have = copy(buf, buf[take(have):have])
	}
}

// eachPart gives whole lines of a file to f, without the first one when that is a header.
func eachPart(path string, buf []byte, header bool, f func(b []byte)) error {
	return eachRead(path, buf, "line", func(have int) int {
		from := 0
		if header {
			from = bytes.IndexByte(buf[:have], '\n') + 1
			header = from == 0
		}
		end := bytes.LastIndexByte(buf[:have], '\n') + 1
		if end > from {
			f(buf[from : end : have+filePad])
		}
		return end
	})
}

// avroMark is what stands behind the header and every block of a file of Avro.
const avroMark = 16

// eachAvroBlock gives the rows of each block to f. A block with its marks is shorter than fileBlock.
func eachAvroBlock(path string, buf []byte, _ bool, f func(b []byte)) error {
	header := true
	return eachRead(path, buf, "block", func(have int) int {
		clear(buf[have : have+filePad])
		from := 0
		if header { // it is short: its mark is that before the last of the bytes read
			end := bytes.Index(buf[:have], []byte("avro.codec")) + len("avro.codec")
			from = end + 1 + len("null") + 1 + avroMark
			header = false
		}
		for {
			_, i := zigzag(buf, from)
			size, i := zigzag(buf, i)
			if i > have || int64(have-i) < size+avroMark {
				return from
			}
			f(buf[i : i+int(size) : have+filePad])
			from = i + int(size) + avroMark
		}
	})
}

// zigzag reads a number of Avro.
func zigzag(b []byte, i int) (v int64, next int) {
	var u uint64
	for shift := uint(0); ; shift += 7 {
		c := b[i]
		i++
		u |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i
		}
	}
}

// avro reads rows from b and returns their length.
func (s *bidScanner) avro(b []byte) (i int) {
	var n int64
	for s.n = 0; s.n < chunkRows && i < len(b); s.n++ {
		s.auction[s.n], i = zigzag(b, i)
		s.bidder[s.n], i = zigzag(b, i)
		s.price[s.n], i = zigzag(b, i)
		n, i = zigzag(b, i)
		s.text[0][s.n] = textSpan{i, i + int(n)}
		n, i = zigzag(b, i+int(n))
		s.text[1][s.n] = textSpan{i, i + int(n)}
		s.ts[s.n], i = zigzag(b, i+int(n))
		s.ts[s.n] -= epochMicros
		n, i = zigzag(b, i)
		s.text[2][s.n] = textSpan{i, i + int(n)}
		i += int(n)
	}
	return i
}

// epochMicros is 2000-01-01, from which streamdb counts, in microseconds since 1970-01-01.
const epochMicros = secondsTo2000 * microsPerSecond

// textSpan is a text in the block being read.
type textSpan struct{ from, to int }

// bidScanner reads bids into columns.
type bidScanner struct {
	all                        bool
	n                          int // rows in the columns
	auction, bidder, price, ts [chunkRows]int64
	text                       [3][chunkRows]textSpan // channel, url, extra
	date                       [dateBytes]byte        // the last one read
	day                        int64                  // in microseconds
	err                        error                  // of dates
}

const (
	lowBits   = 0x0101010101010101
	highBits  = 0x8080808080808080
	wordBytes = 8
)

// number reads digits.
func number(b []byte, i int) (v int64, next int) {
	for {
		x := binary.LittleEndian.Uint64(b[i:]) ^ '0'*lowBits
		n := bits.TrailingZeros64((x+0x76*lowBits|x)&highBits) >> 3
		if n == 0 {
			return v, i
		}
		x <<= uint(wordBytes-n) * 8
		x = (x & (0x0f * lowBits)) * 2561 >> 8
		x = (x & 0x00ff00ff00ff00ff) * 6553601 >> 16
		x = (x & 0x0000ffff0000ffff) * 42949672960001 >> 32
		if i += n; n < wordBytes {
			return v*int64(tens[n]) + int64(x), i
		}
		v = v*int64(tens[wordBytes]) + int64(x)
	}
}

var tens = [wordBytes + 1]uint32{1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000}

// timestamp reads a date, a character, a time with or without a fraction.
func (s *bidScanner) timestamp(b []byte, i int) (us int64, next int) {
	if d := b[i : i+dateBytes]; string(d) != string(s.date[:]) {
		t, err := time.Parse(time.DateOnly, string(d))
		s.err = errors.Join(s.err, err)
		s.day = t.UnixMicro()
		copy(s.date[:], d)
	}
	i += dateBytes + 1
	x := binary.LittleEndian.Uint64(b[i:]) & (0x0f * lowBits)
	h, m, sec := x&0xff*10+x>>8&0xff, x>>24&0xff*10+x>>32&0xff, x>>48&0xff*10+x>>56
	us = s.day + int64((h*60+m)*60+sec)*1_000_000
	if i += wordBytes; b[i] != '.' {
		return us, i
	}
	f, next := number(b, i+1)
	for n := next - i - 1; n < 6; n++ {
		f *= 10
	}
	return us + f, next
}

// until is the index of the next c, which there is.
func until(b []byte, i int, c byte) int { return i + bytes.IndexByte(b[i:], c) }

// csv reads rows from b and returns their length.
func (s *bidScanner) csv(b []byte) (i int) {
	end := len(b)
	wide := b[:cap(b)]
	for s.n = 0; s.n < chunkRows && i < end; s.n++ {
		s.auction[s.n], i = number(wide, i)
		if s.all {
			s.bidder[s.n], i = number(wide, i+1)
		} else {
			i = until(wide, i+1, ',')
		}
		s.price[s.n], i = number(wide, i+1)
		channel := until(wide, i+1, ',')
		url := until(wide, channel+1, ',')
		extra := 0
		s.ts[s.n], extra = s.timestamp(wide, url+1)
		to := until(wide, extra+1, '\n')
		if s.all {
			s.text[0][s.n], s.text[1][s.n], s.text[2][s.n] = textSpan{i + 1, channel}, textSpan{channel + 1, url}, textSpan{extra + 1, to}
		}
		i = to + 1
	}
	return i
}

// What stands before the values of an object.
const (
	beforeAuction = len(`{"auction":`)
	beforeBidder  = len(`,"bidder":`)
	beforePrice   = len(`,"price":`)
	beforeChannel = len(`,"channel":"`)
	beforeURL     = len(`","url":"`)
	beforeTime    = len(`","date_time":"`)
	beforeExtra   = len(`","extra":"`)
	afterExtra    = len("\"}\n")
)

// json reads rows from b and returns their length.
func (s *bidScanner) json(b []byte) (i int) {
	end := len(b)
	wide := b[:cap(b)]
	for s.n = 0; s.n < chunkRows && i < end; s.n++ {
		s.auction[s.n], i = number(wide, i+beforeAuction)
		if s.all {
			s.bidder[s.n], i = number(wide, i+beforeBidder)
		} else {
			i = until(wide, i+beforeBidder, ',')
		}
		s.price[s.n], i = number(wide, i+beforePrice)
		i += beforeChannel
		channel := until(wide, i, '"')
		url := until(wide, channel+beforeURL, '"')
		extra := 0
		s.ts[s.n], extra = s.timestamp(wide, url+beforeTime)
		to := until(wide, extra+beforeExtra, '"')
		if s.all {
			s.text[0][s.n], s.text[1][s.n], s.text[2][s.n] = textSpan{i, channel}, textSpan{channel + beforeURL, url}, textSpan{extra + beforeExtra, to}
		}
		i = to + afterExtra
	}
	return i
}

// windowSums are counts and sums per auction of windows that rows come to in any order.
type windowSums struct {
	first   int64 // window of the first element
	windows []auctionSums
}

type auctionSums struct {
	base   int64 // auction of the first element
	groups []group
}

func (w *windowSums) add(ts, auctions, prices []int64) {
	for i := 0; i < len(ts); {
		window := ts[i] / windowMicros
		from, end := window*windowMicros, (window+1)*windowMicros
		lo, hi := auctions[i], auctions[i]
		j := i
		for ; j < len(ts) && ts[j] >= from && ts[j] < end; j++ {
			lo, hi = min(lo, auctions[j]), max(hi, auctions[j])
		}
		a := w.window(window)
		a.cover(lo, hi)
		groups, base := a.groups, a.base
		for k := i; k < j; k++ {
			g := &groups[auctions[k]-base]
			g.count++
			g.sum += prices[k]
		}
		i = j
	}
}

func (w *windowSums) window(n int64) *auctionSums {
	switch {
	case len(w.windows) == 0:
		w.first = n
	case n < w.first:
		w.windows = append(make([]auctionSums, w.first-n), w.windows...)
		w.first = n
	}
	w.windows = grown(w.windows, max(len(w.windows), int(n-w.first)+1))
	return &w.windows[n-w.first]
}

// cover makes room for the auctions from lo to hi.
func (a *auctionSums) cover(lo, hi int64) {
	switch {
	case len(a.groups) == 0:
		a.base = max(lo-auctionsBack, 0)
	case lo < a.base:
		base := max(lo-auctionsBack, 0)
		a.groups = append(make([]group, a.base-base), a.groups...)
		a.base = base
	}
	a.groups = grown(a.groups, max(len(a.groups), int(hi-a.base)+1))
}

func (w *windowSums) emit(r *Result) {
	for i := range w.windows {
		a := &w.windows[i]
		for k := range a.groups {
			if g := &a.groups[k]; g.count > 0 {
				r.Rows++
				r.Checksum += uint64(a.base+int64(k))*uint64(g.count) + uint64(g.sum)
			}
		}
	}
}
