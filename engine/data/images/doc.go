// Package images reads a folder of class folders with JPEG and PNG files, or a tar, tar.gz or tar.zst of such a folder.
//
// It supports two layouts, each of which may lie inside one more folder:
//
//	CLASS/…/FILE          Open holds out Options.ValFraction of each class for evaluation
//	train/CLASS/…/FILE    evaluation uses val/CLASS/…/FILE, else test/CLASS/…/FILE, else a part of train as above
//
// It also reads the forms in which ImageNet is distributed: a folder with ILSVRC2012_img_train.tar (a tar with one tar
// per class) and optionally ILSVRC2012_img_val.tar; the train tar alone; and Kaggle's unpacked archive. Validation
// images without class folders need LOC_val_solution.csv or val.txt in the same folder. Each line of val.txt holds an
// image and its class or class number. A file LOC_synset_mapping.txt or synset_words.txt in the same folder gives the
// classes their names.
//
// Classes are the folder names in byte order. Samples are ordered by class, then by name, so a folder and a tar of this
// folder are the same data set. Files and folders whose names begin with a dot, and __MACOSX, are ignored. Other files
// that are not .jpg, .jpeg or .png are counted and logged.
//
// Open indexes a plain tar and reads it at random offsets. It decompresses a compressed tar once, to a plain tar in
// Options.CacheDir. It never unpacks a tar into separate files. The documentation of package archive lists the members
// that are refused. A folder is read through os.Root: a link to a target outside the folder is an error.
//
// The contents of a file determine whether it is JPEG or PNG. Grey images become RGB. Transparency is dropped, and the
// stored colours are used. 16-bit channels lose the lower 8 bits. JPEGs with four inks (CMYK, YCCK) are decoded by
// Adobe's convention. EXIF orientation is applied only if DecodeOptions.Orient is set. libturbojpeg decodes JPEGs of
// more than data.FullDecodePixels pixels at half, a quarter or an eighth of their size, if the reduced size suffices.
package images
