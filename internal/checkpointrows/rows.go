package checkpointrows

// Row is one promise of the checkpoint system.
type Row struct {
	Title string
	// Left is why the row is left out, empty for those that tests must show.
	Left string
}

// Rows are the promises by number: the first is row 1. Numbers never change.
var Rows = []Row{
	{Title: "Sources can be read again"},                         // 1
	{Title: "Consistent cut of the whole graph"},                 // 2
	{Title: "Snapshots are written in the background"},           // 3
	{Title: "Restore from the newest completed one"},             // 4
	{Title: "Exactly once"},                                      // 5
	{Title: "At least once"},                                     // 6
	{Title: "Settings that exclude each other"},                  // 7
	{Title: "Barriers carry what they ask for"},                  // 8
	{Title: "Barriers start at the sources"},                     // 9
	{Title: "Barriers go to all outputs"},                        // 10
	{Title: "Alignment"},                                         // 11
	{Title: "Bounded queues of blocked channels"},                // 12
	{Title: "One budget of network memory"},                      // 13
	{Title: "One channel needs no alignment"},                    // 14
	{Title: "A newer barrier ends an older checkpoint"},          // 15
	{Title: "Late and duplicate barriers"},                       // 16
	{Title: "Cancelled checkpoints travel downstream"},           // 17
	{Title: "The end of a channel counts as its barrier"},        // 18
	{Title: "Small buffers are flushed before a barrier"},        // 19
	{Title: "Barriers go on before the snapshot"},                // 20
	{Title: "Unaligned checkpoints"},                             // 21
	{Title: "What is in flight is counted"},                      // 22
	{Title: "Aligned checkpoints become unaligned after a time"}, // 23
	{Title: "Subtasks share files of what is in flight"},         // 24
	{Title: "Savepoints are always aligned"},                     // 25
	{Title: "Edges that stay aligned"},                           // 26
	{Title: "Unaligned checkpoints and another parallelism"},     // 27
	{Title: "Unaligned checkpoints and another graph"},           // 28
	{Title: "Leaving out what was in flight"},                    // 29
	{Title: "Watermarks and unaligned checkpoints"},              // 30
	{Title: "Barriers between timers", Left: "What a watermark closes belongs to one epoch, which readers see whole or not at all: the barrier that closes the epoch waits for it, about a second for a million windows."}, // 31
	{Title: "Checkpoints while what was in flight is restored", Left: "Not needed: a restored job takes in what was in flight with its first barrier, and is checkpointed from there on."},                                 // 32
	{Title: "Queues sized by time", Left: "Queues are bounded by count and bytes; unaligned checkpoints do not wait for what is in them."},                                                                                 // 33
	{Title: "A coordinator per job"},                // 34
	{Title: "Life cycle of a checkpoint"},           // 35
	{Title: "Periodic checkpoints"},                 // 36
	{Title: "The first one comes at a random time"}, // 37
	{Title: "Interval while a source catches up"},   // 38
	{Title: "Checkpoints on request"},               // 39
	{Title: "Queue of requests"},                    // 40
	{Title: "What holds a trigger back"},            // 41
	{Title: "Checkpoints in flight at a time"},      // 42
	{Title: "Pause between checkpoints"},            // 43
	{Title: "Timeout"},                              // 44
	{Title: "Ids are never reused"},                 // 45
	{Title: "The plan of a checkpoint"},             // 46
	{Title: "Checkpoints in flight"},                // 47
	{Title: "Completed checkpoints do not change"},  // 48
	{Title: "Messages name job and attempt"},        // 49
	{Title: "Acknowledgements"},                     // 50
	{Title: "Order of a completion"},                // 51
	{Title: "Completing ends older ones"},           // 52
	{Title: "Notification of completed ones"},       // 53
	{Title: "Notification of aborted ones"},         // 54
	{Title: "Declined checkpoints"},                 // 55
	{Title: "Hooks of a master", Left: "There are no foreign systems that trigger or are triggered by checkpoints; state of coordinators is a job's positions."}, // 56
	{Title: "State of split assignment"},  // 57
	{Title: "Ending the coordinator"},     // 58
	{Title: "Counting failures"},          // 59
	{Title: "Tolerated failures"},         // 60
	{Title: "Failures while sealing"},     // 61
	{Title: "Failures of savepoints"},     // 62
	{Title: "Why a checkpoint took long"}, // 63
	{Title: "Reasons of failures"},        // 64
	{Title: "Restart after a failure"},    // 65
	{Title: "Partly finished operators", Left: "No state is a union over all subtasks."}, // 66
	{Title: "Backends and storages combine freely"},                                      // 67
	{Title: "Checkpoints in memory"},                                                     // 68
	{Title: "Checkpoints in a folder"},                                                   // 69
	{Title: "Checkpoints in S3"},                                                         // 70
	{Title: "Streams and handles of state"},                                              // 71
	{Title: "Small state goes inline"},                                                   // 72
	{Title: "Sizes of writes"},                                                           // 73
	{Title: "Folders"},                                                                   // 74
	{Title: "What a manifest holds"},                                                     // 75
	{Title: "A manifest appears whole or not at all"},                                    // 76
	{Title: "Small files are packed"},                                                    // 77
	{Title: "Who owns and deletes files"},                                                // 78
	{Title: "Memory backend"},                                                            // 79
	{Title: "Pebble backend"},                                                            // 80
	{Title: "Sealing does not depend on the size of the state"},                          // 81
	{Title: "Incremental checkpoints"},                                                   // 82
	{Title: "Duration does not depend on the size of the state"},                         // 83
	{Title: "One block cache and one memory budget"},                                     // 84
	{Title: "Another backend at a restore"},                                              // 85
	{Title: "Kinds of state"},                                                            // 86
	{Title: "Time to live"},                                                              // 87
	{Title: "Changed types of stored rows"},                                              // 88
	{Title: "Deltas are the log"},                                                        // 89
	{Title: "State that stays in the bucket", Left: "State is on local disk while a job runs; checkpoints hold what changed."}, // 90
	{Title: "Registry of shared files"},                      // 91
	{Title: "Completed checkpoints kept"},                    // 92
	{Title: "How many are kept"},                             // 93
	{Title: "What becomes of them when a job goes"},          // 94
	{Title: "Cleaning in the background"},                    // 95
	{Title: "What failed ones leave"},                        // 96
	{Title: "Cleaning at the end of a job"},                  // 97
	{Title: "Orphans are swept"},                             // 98
	{Title: "Asking for a savepoint"},                        // 99
	{Title: "Canonical and native savepoints"},               // 100
	{Title: "Stop with a savepoint"},                         // 101
	{Title: "Savepoints commit nothing outside"},             // 102
	{Title: "Removing savepoints"},                           // 103
	{Title: "Savepoints beside checkpoints"},                 // 104
	{Title: "Choosing what to restore"},                      // 105
	{Title: "Times of a restore"},                            // 106
	{Title: "Sources go back"},                               // 107
	{Title: "No row is lost while a job starts"},             // 108
	{Title: "Nothing to restore"},                            // 109
	{Title: "State that nobody claims"},                      // 110
	{Title: "Ids of operators"},                              // 111
	{Title: "Changed queries"},                               // 112
	{Title: "Another parallelism"},                           // 113
	{Title: "Distribution of operator state"},                // 114
	{Title: "Damaged and missing files"},                     // 115
	{Title: "Falling back to an older one"},                  // 116
	{Title: "Claimed and unclaimed snapshots"},               // 117
	{Title: "Ways to another parallelism"},                   // 118
	{Title: "Local recovery"},                                // 119
	{Title: "Checkpoints after some subtasks have finished"}, // 120
	{Title: "The last rows of bounded jobs"},                 // 121
	{Title: "Finished operators at a restore", Left: "Subtasks do not finish: where a split ended is a position like others, and the plan of a job is the same in all its runs."}, // 122
	{Title: "Two-phase commit"}, // 123
	{Title: "Offsets told to others", Left: "There is no Kafka connector yet."}, // 124
	{Title: "Lost notifications"},                   // 125
	{Title: "Standby"},                              // 126
	{Title: "Ids and checkpoints after a takeover"}, // 127
	{Title: "Writes with unknown outcome"},          // 128
	{Title: "Fencing"},                              // 129
	{Title: "Metrics of jobs"},                      // 130
	{Title: "Metrics of subtasks"},                  // 131
	{Title: "Statistics of subtasks"},               // 132
	{Title: "History"},                              // 133
	{Title: "Figures of failed ones"},               // 134
	{Title: "REST"},                                 // 135
	{Title: "Alert rules"},                          // 136
	{Title: "Metrics of files and restores"},        // 137
	{Title: "Settings and their older names"},       // 138
	{Title: "Advice that runs"},                     // 139
	{Title: "Defaults"},                             // 140
	{Title: "Changes while a job runs"},             // 141
	{Title: "State of a checkpoint in SQL"},         // 142
}
