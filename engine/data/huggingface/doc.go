// Package huggingface reads data sets in the forms of Hugging Face's library datasets:
//
//	form               files
//	save_to_disk       dataset_dict.json and a folder for each split, or one folder: state.json, data-*.arrow
//	cache of datasets  dataset_info.json, NAME-SPLIT.arrow or NAME-SPLIT-00000-of-00002.arrow
//	Parquet            train-00000-of-00002.parquet, train/0000.parquet, train.parquet; in folders, or behind the links
//	                   of the cache of the hub
//	one file           .arrow or .parquet
//	list of images     metadata.csv or metadata.jsonl in a folder of images, or in one folder for each split: the
//	                   columns file_name and label; or one .csv, .tsv or .jsonl file
//
// [Find] lists the files of the splits. The name of a split determines its part (package layout), unless Options names
// the splits.
//
// [Open] opens a data set of images. The image column contains encoded bytes, or paths of files. Labels are values of a
// ClassLabel, other whole numbers, or names. Images in Arrow files are read in place. A Parquet file does not contain
// the positions of single values. Therefore the first run copies the images to Options.CacheDir, as datasets itself
// does.
//
// Package table reads the files.
package huggingface
