// Package objects reads and writes objects of S3 and of servers with the same protocol. Names are s3://BUCKET/KEY.
//
//	client, err := objects.Shared()                         // settings and credentials of the environment
//	info, err := client.Stat(ctx, name)                     // size and ETag
//	err = client.ReadRange(ctx, info, offset, p)            // fails if the object has changed since Stat
//	list, err := client.List(ctx, prefix)
//	err = client.Put(ctx, name, file, size)                 // several parts if the file is large
//
// # Settings
//
// All settings come from the environment, none from a configuration: a configuration of a stranger cannot send
// credentials to another server. Credentials of a role come from the services that the environment names, or from the
// machine.
//
//	AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN   keys
//	AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN                     a role for a web identity (Kubernetes on AWS)
//	AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, …_FULL_URI            the role of a container
//	AWS_EC2_METADATA_DISABLED                                     true: do not ask the machine for its role
//	AWS_NO_SIGN_REQUEST                                           true: public buckets, without credentials
//	AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL                         another server than AWS
//	AWS_REGION, AWS_DEFAULT_REGION                                region
//
// The files of the AWS tools (~/.aws) are not read.
//
// # Requests
//
// A request is tried up to 8 times, with exponential waits of 0.2 s to 5 s, if the cause may pass: no connection, a
// body that ends early, a status of 429 or from 500 on. Each try has a time limit, which grows with the size of its
// body. A Client has at most 64 requests in flight. The client follows no redirects. Replace stores an object only in
// place of an expected one. Put makes an object visible only when it is complete; it aborts a failed upload of several
// parts.
//
// # Errors
//
// Errors are *Error, which names the request, the object and the cure. A missing object or bucket is fs.ErrNotExist.
// Texts of errors contain no credentials.
package objects
