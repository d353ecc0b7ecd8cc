// Package table reads the rows of Arrow and Parquet files, as Hugging Face's library datasets writes them.
//
//	f, err := table.Open("data-00000-of-00001.arrow") // the content of the file determines its format
//	err = f.Scan(ctx, []table.Column{{Path: "text"}, {Path: "label"}}, func(row []table.Value) error { … })
//	err = f.Close()
//
// A Column is a path of names: "label", or "image.bytes" in a column of structures. Its values are numbers, texts,
// bytes or lists of whole numbers; see [Kind]. Scan reads only the selected columns, batch by batch (Arrow) or page by
// page (Parquet), so files may be larger than memory.
//
// With Column.Locate, Scan returns the positions of bytes in an Arrow file instead of the bytes. A caller can then read
// a single value by its position, without the rest of its batch.
//
// Arrow files are streams (datasets) or files with an index (the file format of Arrow), without compression.
// Dictionaries and views are refused, because datasets does not write them. Files are untrusted: metadata that leads
// outside the file is an error.
//
// A Feature is the type of a column in datasets, such as ClassLabel with the names of the classes. The files contain it
// next to the schema.
package table
