// Package layout defines the rules for the names and the links of files, which all data sets share.
//
// # Names of parts
//
// A file or a folder names a part of a data set if its name contains one of these words, in upper or lower case:
//
//	part        words
//	train       train, training
//	validation  val, valid, validation, dev
//	test        test, testing, eval
//
// A word ends at each character that is not a letter. val2017, imagenet1k-validation-00.tar and My_Data.TRAIN are
// therefore names of parts; interval.bin and trainer are not. A name with words of two parts is an error.
//
// [Divide] applies the rule to the files of a data set, and [Folders] to its folders. The evaluation part is the
// validation part if there is one, otherwise the test part. If a data set has both, the test part is not used.
//
// # Files of storage systems
//
// [System] recognises hidden files, and folders that file systems, network storage and notebooks add, such as @eaDir
// and lost+found. Such files and folders never belong to a data set.
//
// # Lists of folders
//
// [Folder.Scan] lists a folder without a call per file, and reads several folders at a time. For a large folder, it
// stores the list in a file that all processes of the machine share. The next start checks the modification times of
// the folders against this list. On file systems that are not known to maintain these times, no list is stored. A scan
// limits the total number of folders, and the number of paths to one folder, because links can multiply folders.
//
// # Links
//
// [Folder] lists and opens the files of a folder. It follows symbolic links, including links to targets outside the
// folder, and refuses a link to a folder that contains the link. With follow = false, it refuses links that leave the
// folder; use this for untrusted folders. The rules of package archive apply to links within an archive.
package layout
