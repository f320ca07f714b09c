"""From a file to typed batches, by streaming: blocks of lines, parsed on all cores, every bad row counted."""
