import { tool } from '@langchain/core/tools';
import { z } from 'zod';

export const trackParcel = tool(
  async ({ parcel }) => {
    return `Parcel ${parcel} is on its way.`;
  },
  {
    name: 'track_parcel',
    description: 'Says where a parcel is.',
    schema: z.object({ parcel: z.string() }),
  },
);
