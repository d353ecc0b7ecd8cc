// Package layout has the rules that all data sets share for the names and the links of their files.
//
// # Names of parts
//
// A name of a file or a folder names a part of a data set if it contains one of these words, in any case:
//
//	part        words
//	train       train, training
//	validation  val, valid, validation, dev
//	test        test, testing, eval
//
// A word ends at each character that is not a letter. val2017, imagenet1k-validation-00.tar and My_Data.TRAIN are
// therefore names of parts; interval.bin and trainer are not. A name with words of two parts is an error.
//
// [Divide] applies the rule to the files of a data set, and [Folders] to its folders. If a data set has both parts, the
// validation part evaluates during training, and the test part is not used. Without a validation part, the test part
// evaluates.
//
// # Files of storage systems
//
// [System] recognises hidden files and the folders that file systems, network storage and notebooks add, such as @eaDir
// and lost+found. They never belong to a data set.
//
// # Lists of folders
//
// [Folder.Scan] lists a folder without a call per file, and several folders at a time. It keeps the list of a large
// folder as a file, which the processes of a machine share, and which the next start checks by the times of the
// folders. It keeps no list on file systems that are not known to maintain these times. A scan has limits for the
// folders in all, and for the paths to one folder, because links can multiply folders.
//
// # Links
//
// [Folder] lists and opens the files of a folder. It follows symbolic links, also those to targets outside the folder,
// and refuses a link to a folder that contains the link. With follow = false it refuses links that leave the folder,
// for folders of unknown origin. The rules of package archive apply to links within an archive.
package layout
