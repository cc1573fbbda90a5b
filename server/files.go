package server

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/streamdb/streamdb/internal/pgerr"
)

// The local copy of the catalog, the settings changed by ALTER SYSTEM, and the newest epoch that may have been told to clients: magic, version u16, crc32c u32, length u32, JSON. They are
// replaced by rename, so they are always whole.
const (
	catalogFile    = "catalog"
	catalogMagic   = "SDBCAT"
	settingsFile   = "settings"
	settingsMagic  = "SDBSET"
	epochsFile     = "epochs"
	epochsMagic    = "SDBEPO"
	catalogVersion = 1
	catalogHeader  = len(catalogMagic) + 2 + 4 + 4
)

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func readCatalog(path string) ([]byte, error) {
	return readFile(path, catalogMagic, "catalog", "Remove it to use the catalog of the last checkpoint.")
}

func writeCatalog(path string, body []byte) error {
	return writeFile(path, catalogMagic, "catalog", body)
}

// readFile returns the body of a file with magic; nil when there is none. what names it in messages, hint says what to do when it is bad.
func readFile(path, magic, what, hint string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, pgerr.Wrap(pgerr.IOError, err, "read %s", what)
	}
	if len(b) < catalogHeader || string(b[:len(magic)]) != magic {
		return nil, pgerr.Newf(pgerr.DataCorrupted, "%s is not a %s file", path, what).WithHint("%s", hint)
	}
	h := b[len(magic):]
	if v := binary.BigEndian.Uint16(h); v > catalogVersion {
		return nil, pgerr.Newf(pgerr.FeatureNotSupported, "%s has format version %d, this version of streamdb knows %d", path, v, catalogVersion)
	}
	body := h[10:]
	if uint32(len(body)) != binary.BigEndian.Uint32(h[6:]) || castagnoli(body) != binary.BigEndian.Uint32(h[2:]) {
		return nil, pgerr.Newf(pgerr.DataCorrupted, "%s is corrupt: its checksum is wrong", path).WithHint("%s", hint)
	}
	return body, nil
}

func writeFile(path, magic, what string, body []byte) (err error) {
	b := make([]byte, 0, catalogHeader+len(body))
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint16(b, catalogVersion)
	b = binary.BigEndian.AppendUint32(b, castagnoli(body))
	b = binary.BigEndian.AppendUint32(b, uint32(len(body)))
	b = append(b, body...)
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return ioError(err, "write "+what)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return ioError(err, "write "+what)
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return ioError(err, "write "+what)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

func ioError(err error, doing string) error {
	if errors.Is(err, syscall.ENOSPC) {
		return pgerr.Wrap(pgerr.DiskFull, err, "%s", doing).WithHint("Free space on the volume of the data directory; nothing was lost.")
	}
	return pgerr.Wrap(pgerr.IOError, err, "%s", doing)
}

// lockDir makes sure that one server at a time uses the directory. The lock goes with the process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "LOCK"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, ioError(err, "lock data directory")
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = errors.Join(err, f.Close())
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, pgerr.Newf(pgerr.ObjectInUse, "data directory %s is in use by another server", dir).
				WithHint("Stop that server, or give this one another --data-dir.")
		}
		return nil, pgerr.Wrap(pgerr.IOError, err, "lock data directory")
	}
	return f, nil
}
