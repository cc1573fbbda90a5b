package functions

// families lists the tables of implementations, one per file.
func families() [][]entry {
	return [][]entry{
		aggregates(),
		arithmetic(),
		comparisons(),
		castFunctions(),
		textFunctions(),
		patternFunctions(),
		regexpFunctions(),
		regexpPositions(),
		byteFunctions(),
		hashFunctions(),
		unicodeFunctions(),
		jsonObjectFunctions(),
		mathFunctions(),
		datetimeFunctions(),
		jsonFunctions(),
		jsonPathFunctions(),
		arrayFunctions(),
		arrayAssignFunctions(),
		limitFunctions(),
		setFunctions(),
		compositeFunctions(),
		recordFunctions(),
		systemFunctions(),
		checkpointFunctions(),
		enumFunctions(),
		templateFunctions(),
	}
}
