"""What client, proxy and server share: messages, and how a vector becomes one part for each of two parties.

`rounds`, `questions`, `noise`              what a round counts, and what all parties agreed on
`promises`, `contribution`, `exchanges`     what a run promises each device, and whether its noise keeps that
`groups`, `masks`, `sealing`, `forms`       a vector's two parts, and what each party does with its own
`uploads`, `credentials`, `jobs`, `closing` the messages from device to proxy to server to release
`releases`, `drawing`, `checking`           what a party does before anything leaves: it pays, and adds noise
`refusals`, `encoding`                      what is said of the others; one spelling of each message
"""
