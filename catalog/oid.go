package catalog

import "hash/fnv"

// OIDs of derived objects. A relation's OID is its id. What PostgreSQL gives an OID of its own beside the relation gets one that follows from
// the id alone, so that it is the same in every session and after every restart:
//
//	bits 31…28   0        the object itself (and PostgreSQL's own OIDs below 16384)
//	             1…7      a class of which a relation has one: class << 28 | id
//	             8…15     a class of which it has many: 1 << 31 | id << 10 | number
//	                      number = position of the column for defaults, 768 + position for checks
//
// The classes cannot meet each other. An id past 2^28, or for defaults and checks past 2^21, and a number past its range have no derived OIDs:
// such objects are left out of the catalogue relation concerned rather than listed under an OID of another object.
const (
	classIndex      = 1
	classPrimaryKey = 2
	classRowType    = 3
	classRowArray   = 4
	classServer     = 5
	classEnumArray  = 6 // the array type of an enum (types.ArrayOf knows the rule)
	classUnique     = 7 // the UNIQUE constraint of an index

	classShift    = 28
	manyFlag      = 1 << 31
	numberBits    = 10
	firstCheck    = 768
	maxID         = 1 << classShift
	maxIDWithMany = 1 << (31 - numberBits)
)

// DatabaseOID is the OID of the one database.
const DatabaseOID uint32 = 16382

// DatabaseClass is the OID of pg_database, in which it stands.
const DatabaseClass uint32 = pgDatabaseOID

// Fixed OIDs of objects that every database has. They lie below the ids of users' objects and outside PostgreSQL's own.
const (
	ownerOID     uint32 = 10    // the role streamdb, PostgreSQL's bootstrap superuser
	extensionOID uint32 = 13002 // of the schema streamdb
	sessionOID   uint32 = 16383 // the connected user when it is another one
	databaseOID         = DatabaseOID
	wrapperOID   uint32 = 16381
	firstOwnFunc uint32 = 8000 // functions that PostgreSQL does not have: firstOwnFunc + hash; PostgreSQL leaves 8000…9999 free
	ownFuncs     uint32 = 2000
	firstCast    uint32 = 10100
)

// OIDs of the catalogues that descriptions and dependencies refer to.
const (
	pgClassOID      = 1259
	pgProcOID       = 1255
	pgTypeOID       = 1247
	pgNamespaceOID  = 2615
	pgConstraintOID = 2606
	pgAttrdefOID    = 2604
	pgAuthidOID     = 1260
	pgDatabaseOID   = 1262
	pgExtensionOID  = 3079
	pgWrapperOID    = 2328
)

func derivedOID(class, id uint64) uint32 {
	if id >= maxID {
		return 0
	}
	return uint32(class<<classShift | id)
}

func numberedOID(id uint64, number, limit int) uint32 {
	if id >= maxIDWithMany || number >= limit {
		return 0
	}
	return uint32(manyFlag | id<<numberBits | uint64(number))
}

// TableOID is the OID of the table with the given id, 0 when it has none.
func TableOID(id uint64) uint32 { return derivedOID(0, id) }

func relationOID(o *Object) uint32   { return derivedOID(0, o.ID) }
func indexOID(o *Object) uint32      { return derivedOID(classIndex, o.ID) }
func primaryKeyOID(o *Object) uint32 { return derivedOID(classPrimaryKey, o.ID) }
func rowTypeOID(o *Object) uint32    { return derivedOID(classRowType, o.ID) }
func rowArrayOID(o *Object) uint32   { return derivedOID(classRowArray, o.ID) }

// serverOID is the OID of the foreign server that stands for a connector; o is the oldest source that uses it.
func serverOID(o *Object) uint32 { return derivedOID(classServer, o.ID) }

func defaultOID(o *Object, column int) uint32 { return numberedOID(o.ID, column, firstCheck) }

func checkOID(o *Object, check int) uint32 {
	return numberedOID(o.ID, firstCheck+check, 1<<numberBits)
}

// splitOID returns the id of the relation an OID was derived from, its class (0 for the relation itself, manyFlag>>28 for numbered ones) and its number.
func splitOID(oid uint32) (id uint64, class uint32, number int) {
	if oid&manyFlag != 0 {
		return uint64(oid&^manyFlag) >> numberBits, manyFlag >> classShift, int(oid & (1<<numberBits - 1))
	}
	return uint64(oid & (maxID - 1)), oid >> classShift, 0
}

// ownFuncOID proposes an OID for a function that PostgreSQL does not have; the caller resolves collisions.
func ownFuncOID(id string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(id)) // never fails
	return firstOwnFunc + h.Sum32()%ownFuncs
}
