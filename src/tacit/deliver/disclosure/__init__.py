"""What a person discloses of a context: a level, or the block of a cut that holds it.

None of this is differential privacy. A cut limits what one disclosure says, to someone who knows the cut and
nothing else. Outside of it lie:

- time: disclosures of one person that can be linked intersect, with each other and with the roads between
  them. Each may leave a hundred places, and all of them together one;
- what the server knows already: the leaves of a block count alike here, however likely each of them is;
- the message around the disclosure: its hour, network address, device and length;
- the choice of the cut, which says something about the person who chose it (see `menu`).
"""
